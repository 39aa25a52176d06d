"""The native protocol: frames, connections and sockets, with TLS and compression.

``transport.py`` takes frames from a client's socket, ``frame.py`` reads the requests in them, ``connection.py`` serves
them, ``answer.py`` writes answers and events, and ``server.py`` listens. A request takes an opcode in ``frame.py`` and
a handler in ``connection.py``.
"""
