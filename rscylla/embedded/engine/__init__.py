"""Statements carried out: names bound, plans compiled, rows read and written.

``engine.py`` sends each statement to its module. ``compiling.py`` makes plans: of SELECT in ``select.py`` (with
``selectrules.py``, ``where.py``, ``filtering.py``, ``projection.py``, ``reading.py``), of writes in ``write.py`` (with
``operations.py``, ``conditions.py``, ``lwt.py``); ``writing.py`` carries the writes out.
Schema statements go to ``ddl``. A scalar function is added in ``functions.py``, an aggregate in ``aggregates.py``.
"""
