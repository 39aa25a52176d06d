"""INSERT, UPDATE, DELETE and BATCH: their plans, what they do to columns, conditions, and how they are carried out."""
