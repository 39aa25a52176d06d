"""What keyspaces, tables, columns and types are: their values, their properties, and how a type changes.

A property of tables is added in ``properties.py``; a field of ``TableSchema`` has to survive
``durability/statecodec.py``.
"""
