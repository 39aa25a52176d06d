"""Reads along a log: scans, readers, shared readers, and spans."""
