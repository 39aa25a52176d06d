"""What can go wrong with reading a table's log.

facts    reads the facts from a cluster; a query that fails is a fact, too
finding  what facts there are, and what a finding is
judges   say from the facts what is wrong, and what to do; replicas whether reads see all writes. Pure
"""

from .facts import diagnose
from .finding import Finding

__all__ = [
    "Finding",
    "diagnose",
]
