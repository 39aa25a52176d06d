"""What can go wrong with reading a table's log: facts, and the judges of them."""

from .facts import diagnose
from .judges import Finding

__all__ = [
    "Finding",
    "diagnose",
]
