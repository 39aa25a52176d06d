"""What keyspaces, tables, columns and types are: their values, their properties, and how a type changes."""
