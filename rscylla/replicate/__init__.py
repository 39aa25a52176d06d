"""Copying a table's changes to another table, and comparing the two."""

from .replicator import Replicator, Ttl
from .verify import Difference, Verdict, verify

__all__ = ["Difference", "Replicator", "Ttl", "Verdict", "verify"]
