"""Statements carried out: names bound, plans compiled, rows read and written.

``engine.py`` sends each statement to its module: SELECT to ``select.py`` (with ``selectrules.py``, ``where.py``,
``filtering.py``, ``projection.py``, ``reading.py``), writes to ``write.py`` (with ``operations.py``,
``conditions.py``, ``lwt.py``), schema statements to ``ddl``. A scalar function is added in ``functions.py``, an
aggregate in ``projection.py``.
"""
