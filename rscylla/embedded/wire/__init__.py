"""The native protocol: frames, connections and sockets, with TLS and compression.

``frame.py`` reads requests, ``answer.py`` writes answers and events, ``connection.py`` serves one client and
``server.py`` listens. A request takes an opcode in ``frame.py`` and a handler in ``connection.py``.
"""
