"""WHERE and IF: which partitions and rows a statement means, and what is checked row by row."""
