"""The only door to ``cassandra`` (scylla-driver).

connections  ``connect``, and what is wrong with TLS
session      sessions for log reads and for small queries
pages        pages whose cells are not decoded
errors       the driver's errors as this library's
"""

from .connections import connect
from .errors import DRIVER_ERRORS, took_too_long, translate
from .pages import Column, Page
from .session import (
    RawRead,
    ReadSession,
    ReadStatement,
    Session,
    consistency_named,
    driver_version,
    hash_of_key,
)

__all__ = [
    "DRIVER_ERRORS",
    "Column",
    "Page",
    "RawRead",
    "ReadSession",
    "ReadStatement",
    "Session",
    "connect",
    "consistency_named",
    "driver_version",
    "hash_of_key",
    "took_too_long",
    "translate",
]
