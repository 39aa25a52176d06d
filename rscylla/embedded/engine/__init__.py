"""Statements carried out: names bound, plans compiled, rows read and written."""
