"""Transforms of records, chains of them, and Java's regular expressions."""
