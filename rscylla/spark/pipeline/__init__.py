"""What pipelines do with a DataFrame of changes: current rows, history, tables kept up to date."""
