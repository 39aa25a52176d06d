"""How data outlives the process: a log of all changes, snapshots, and the lock of a data directory.

``records.py`` frames bytes in a file, ``datadir.py`` keeps the files of a directory, ``statecodec.py`` turns values
into bytes, and ``durable.py`` decides what is written. A kind of change takes a record in ``durable.py``, both for
writing and for replay.
"""
