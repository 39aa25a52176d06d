"""Where rows live: partitions in token order, mutations, and the rules by which two writes become one.

``mutation.py`` is what a write is, ``reconcile.py`` merges two, ``partitions.py`` keeps the result in the orders that
``tokens.py`` and ``positions.py`` define. ``rowttl.py`` finds rows that have expired by a column of theirs.
"""
