"""What pipelines do with a DataFrame of changes: the current rows, their history, tables kept up to date, a way back."""
