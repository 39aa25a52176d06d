"""What can go wrong with reading a table's log.

facts    reads the facts from a cluster; a query that fails is a fact, too
judges   says from the facts what is wrong, and what to do. Pure
"""

from .facts import diagnose
from .judges import Finding

__all__ = [
    "Finding",
    "diagnose",
]
