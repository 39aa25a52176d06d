"""The CDC log of a table: its columns, its options, and the rows that a write puts into it.

``options.py`` reads ``WITH cdc``, ``log.py`` makes columns and rows, ``split.py`` turns a write into records, and
``images.py`` with ``reads.py`` makes preimages and postimages. A log column or an operation is added in ``log.py``.
"""
