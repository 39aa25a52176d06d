"""Copies the changes of a table to another table, and compares the two."""

from .replicator import Replicator, Ttl
from .verify import Difference, Verdict, verify

__all__ = ["Difference", "Replicator", "Ttl", "Verdict", "verify"]
