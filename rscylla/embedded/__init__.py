"""An embedded Scylla for development and tests: CQL over the native protocol on loopback, with CDC.

It imports nothing else of rscylla, so that it cannot share the client's mistakes.
"""

from __future__ import annotations

try:
    from .facade import EmbeddedScylla
except ModuleNotFoundError as error:
    if error.name not in ("lark", "sortedcontainers"):
        raise
    raise ModuleNotFoundError(
        f"the embedded Scylla needs the package {error.name}: pip install 'rscylla[embedded]'", name=error.name
    ) from error
from .clock import Clock, ManualClock, SystemClock
from .errors import CqlError, EmbeddedScyllaError
from .faults.rules import Faults, Rule, Statements
from .process import EmbeddedScyllaProcess
from .result import UNSET
from .wire.tls import Tls

__all__ = [
    "UNSET",
    "Clock",
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
]
