"""The rows of ``system.config``: settings of Scylla that have a counterpart here, with the values that hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..cluster.node import Node
from ..cluster.topology import Cluster

__all__ = ["config_rows"]


def config_rows(cluster: Cluster, node: Node, *, has_users: bool) -> Iterator[dict[str, Any]]:
    """Yield the settings of *node*; values are JSON, as Scylla has them."""
    package = "org.apache.cassandra."
    settings: dict[str, Any] = {
        "authenticator": "PasswordAuthenticator" if has_users else "AllowAllAuthenticator",
        "authorizer": "AllowAllAuthorizer",
        "cas_contention_timeout_in_ms": 1000,
        "cluster_name": cluster.name,
        "compaction_enforce_min_threshold": False,
        "enable_create_table_with_compact_storage": False,
        "endpoint_snitch": package + "locator.SimpleSnitch",
        "experimental_features": [],
        "listen_address": node.address,
        "num_tokens": len(node.tokens),
        "partitioner": package + "dht.Murmur3Partitioner",
        "range_request_timeout_in_ms": 10000,
        "read_request_timeout_in_ms": 5000,
        "request_timeout_in_ms": 10000,
        "restrict_dtcs": "true",
        "rpc_address": node.address,
        "tablets_mode_for_new_keyspaces": "enabled" if cluster.tablets_by_default else "disabled",
        "truncate_request_timeout_in_ms": 60000,
        "twcs_max_window_count": 50,
        "write_request_timeout_in_ms": 2000,
    }
    kinds = {bool: "bool", int: "integer", str: "string", list: "string list"}
    for name, value in settings.items():
        yield {"name": name, "source": "default", "type": kinds[type(value)], "value": json.dumps(value)}
