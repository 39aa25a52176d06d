"""Leases: one replica of a service works, and the others stand by."""
