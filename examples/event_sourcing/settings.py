"""What can be configured, by the command line or by variables of the environment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta

import attrs

__all__ = ["Settings", "parse"]


@attrs.frozen
class Settings:
    """How the shop runs. Without ``scylla``, an embedded server; without ``kafka``, a mock broker.

    ``lag``: the age at which a change is read from the log. On a cluster, clocks differ and rows arrive late: 30 s is
    safe there, and a reader that is earlier may miss some. The embedded server has one clock: 0.2 s will do.
    """

    scylla: tuple[str, ...] = ()
    username: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    kafka: str = ""
    keyspace: str = "shop"
    replication: int = 3
    host: str = "127.0.0.1"
    port: int = 8000
    service_port: int = 0
    lag: timedelta = timedelta(seconds=30)
    pay_within: timedelta = timedelta(minutes=30)
    slices: int = 8
    allowed_hosts: tuple[str, ...] = ()
    snapshot_every: int = 100

    @property
    def is_embedded(self) -> bool:
        return not self.scylla


def parse(arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of a command line; what it leaves out is taken from variables such as ``SHOP_SCYLLA``."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.event_sourcing",
        description="A shop that is event-sourced on ScyllaDB. Without addresses, it brings its own server and broker.",
    )

    def option(name: str, default: object, help_text: str, kind: type = str) -> None:
        variable = "SHOP_" + name.upper().replace("-", "_")
        given = environment.get(variable)
        text = f"{help_text} ({variable}; default: {default or 'none'})"
        parser.add_argument(f"--{name}", type=kind, default=given if given is not None else default, help=text)

    option("scylla", "", "contact points, host or host:port, separated by commas; none: an embedded server")
    option("username", "", "user of the cluster; the password is in SHOP_PASSWORD")
    option("kafka", "", "bootstrap servers of a broker; none: a mock in this process")
    option("keyspace", "shop", "keyspace of all tables")
    option("replication", 3, "replicas of each row, if the keyspace has to be created", int)
    option("host", "127.0.0.1", "address to listen on; nobody logs in, so keep it loopback or put a proxy before it")
    option("port", 8000, "port of the API and the page; 0: any", int)
    option("service-port", 0, "port of /metrics, /healthz, /readyz and the page of the service; 0: any", int)
    option("lag", 0.0, "seconds that a change waits before it is read; 0: 30, or 0.2 with the embedded server", float)
    option("pay-within", 1800.0, "seconds after which a confirmed order is cancelled if it is not paid", float)
    option("slices", 8, "slices of the group, and so the most processes that share the work", int)
    option("allowed-hosts", "", "names by which a proxy asks for this service, separated by commas")
    found = parser.parse_args(arguments)
    scylla = _split(found.scylla)
    return Settings(
        scylla,
        found.username or None,
        environment.get("SHOP_PASSWORD") if found.username else None,
        found.kafka,
        found.keyspace,
        found.replication,
        found.host,
        found.port,
        found.service_port,
        timedelta(seconds=found.lag or (30.0 if scylla else 0.2)),
        timedelta(seconds=found.pay_within),
        found.slices,
        _split(found.allowed_hosts),
    )


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
