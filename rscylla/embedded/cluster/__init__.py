"""Nodes, tokens, and the streams that follow from them: generations of vnodes, stream sets of tablets.

``topology.py`` is the ring and chooses the stream of a write; ``generation.py`` and ``tablets.py`` make streams, and
``descriptions.py`` tells which tables list them. What has to survive a restart goes into ``state`` and ``restore``.
"""
