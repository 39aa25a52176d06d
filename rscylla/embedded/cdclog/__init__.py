"""The CDC log of a table: its columns, its options, and the rows that a write puts into it."""
