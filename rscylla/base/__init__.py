"""Base tables, for whatever reads or writes them beside their logs: their columns, their rows, and their statements."""
