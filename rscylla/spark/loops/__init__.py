"""Loops over windows: ``windows``, and tables that are kept up to date, one or many."""
