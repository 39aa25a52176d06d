"""The native protocol: frames, connections and sockets, with TLS and compression."""
