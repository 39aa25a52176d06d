"""Statements carried out: names bound, plans compiled, rows read and written.

``engine.py`` sends each statement to its module, schema statements to ``ddl``. ``compiling.py`` makes the plans of
``reads`` and ``writes``, which share ``where`` and ``values``. A scalar function is added in ``values/functions.py``,
an aggregate in ``values/aggregates.py``.
"""
