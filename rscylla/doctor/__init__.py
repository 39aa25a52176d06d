"""What can go wrong with reading a table's log: facts, and the judges of them."""
