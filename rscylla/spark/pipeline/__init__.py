"""Pipelines over a DataFrame of changes: current rows, history, tables that are kept up to date."""
