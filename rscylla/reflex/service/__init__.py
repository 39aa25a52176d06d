"""Services: many specs in one process under one supervisor, with health checks and metrics over HTTP."""

from .restarts import Restarts
from .supervisor import Service

__all__ = ["Restarts", "Service"]
