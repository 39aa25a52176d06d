"""Commands to a running server from outside: what asks, what carries them out, and the socket that takes them.

``commands.py`` has the lines of JSON and both their ends, ``sockets.py`` the Unix socket and its client, ``faults.py``
what is done for `Faults`.
"""
