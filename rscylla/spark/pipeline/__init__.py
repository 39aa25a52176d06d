"""Pipelines over a DataFrame of changes: current rows, history, tables that are kept up to date.

``cells.py`` merges changes by write time; ``latest.py`` and ``history.py`` derive rows from the cells, which
``tables.py`` and ``merging.py`` keep up to date. ``sink.py`` writes changes back to a database: another sink takes a
module beside it, and its names in ``rscylla/spark/__init__.py``.
"""
