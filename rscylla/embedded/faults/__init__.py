"""Breaking a cluster on purpose: what the owner asks for, and what becomes of each request."""
