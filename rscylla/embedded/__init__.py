"""An embedded Scylla for development and tests: CQL over the native protocol on loopback, with CDC.

It imports nothing else of rscylla, so that it cannot share the client's mistakes. Its rooms, each of which imports only
rooms below it::

    facade, process, child      what owners start, use, change and stop
    control                     commands to a server from outside, and what carries them out
    status                      what a server tells of itself
    loopthread                  the thread of the event loop
    sessions                    sessions of the driver, opened for owners and closed with the server
    durability                  what outlives the process: a log of all changes, snapshots, the data directory
    wire                        the native protocol: frames, connections, sockets
    engine                      statements compiled and carried out
    faults                      what is broken on purpose
    system                      system tables and DESCRIBE
    cdclog, cluster             rows of CDC logs; nodes, generations, stream sets
    storage                     partitions, mutations, and how two writes become one
    schema                      keyspaces, tables, their properties
    result                      what the engine hands the wire
    types                       CQL types and values
    cql                         CQL text to a tree: grammar, lexer, parser
    errors, clock               the ground
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .clock import Clock, ManualClock, SystemClock

if TYPE_CHECKING:
    from .control.sockets import ControlClient
    from .errors import ControlUnavailable, CqlError, EmbeddedScyllaError
    from .facade import EmbeddedScylla
    from .faults.rules import Faults, Rule, Statements
    from .process import EmbeddedScyllaProcess
    from .result import UNSET
    from .versions import RELEASES, Version
    from .wire.tls import Tls

__all__ = [
    "RELEASES",
    "UNSET",
    "Clock",
    "ControlClient",
    "ControlUnavailable",
    "CqlError",
    "EmbeddedScylla",
    "EmbeddedScyllaError",
    "EmbeddedScyllaProcess",
    "Faults",
    "ManualClock",
    "Rule",
    "Statements",
    "SystemClock",
    "Tls",
    "Version",
]

# Imported at first use: a test without a server needs the clock alone, not lark and sortedcontainers.
_HOMES = {
    "RELEASES": ".versions",
    "UNSET": ".result",
    "ControlClient": ".control.sockets",
    "ControlUnavailable": ".errors",
    "CqlError": ".errors",
    "EmbeddedScylla": ".facade",
    "EmbeddedScyllaError": ".errors",
    "EmbeddedScyllaProcess": ".process",
    "Faults": ".faults.rules",
    "Rule": ".faults.rules",
    "Statements": ".faults.rules",
    "Tls": ".wire.tls",
    "Version": ".versions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = globals()[name] = getattr(import_module(_HOMES[name], __name__), name)
    except ModuleNotFoundError as error:
        if error.name not in ("lark", "sortedcontainers"):
            raise
        raise ModuleNotFoundError(
            f"the embedded Scylla needs the package {error.name}: pip install 'rscylla[embedded]'", name=error.name
        ) from error
    return found
