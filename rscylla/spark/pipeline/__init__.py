"""Pipelines over a DataFrame of changes: current rows, history, snapshots.

``cells.py`` merges changes by write time; ``latest.py`` and ``history.py`` derive rows from the cells. ``tables.py``
and ``files.py`` are what the tables in ``rscylla/spark/sinks/`` have in common, ``replay.py`` turns rows of a DataFrame
into statements for the sink that writes to Scylla.
"""
