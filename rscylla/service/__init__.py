"""Services: many specs in one process under one supervisor, alone or in a group, with health checks and metrics."""

from .groups.group import Group, group_lanes
from .restarts import Restarts
from .supervisor import Service

__all__ = ["Group", "Restarts", "Service", "group_lanes"]
