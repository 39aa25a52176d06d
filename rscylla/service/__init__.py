"""Services: many specs in one process, supervised, alone or in a group.

supervisor     ``Service``: starts, restarts, and stops lanes
worker         a lane: its thread runs one spec; ``Worker.facts`` is what health and page know of it
restarts       how often a lane may fail
health         facts of a service, and whether it is alive; readiness: whether all is read by somebody
shown          the pages and the metrics of a service
http           ``/healthz``, ``/readyz``, ``/metrics``, and the page
lease          leases and memberships, acquired and renewed
letter_counts  dead letters, counted in a thread
groups/        processes that share slices
page/          ``/status`` and the page that draws it
"""

from .groups.group import Group, group_lanes
from .restarts import Restarts
from .supervisor import Service

__all__ = ["Group", "Restarts", "Service", "group_lanes"]
