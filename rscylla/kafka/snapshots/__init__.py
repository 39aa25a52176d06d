"""Rows of base tables as records, before their changes or beside them."""
