"""Options that name the properties of a Kafka connector, and what these say: its cluster, and its cursors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import attrs
from typer import Option

import rscylla

from .standard import hide

if TYPE_CHECKING:
    from rscylla.kafka import KafkaCursorStore, Properties

__all__ = ["BootstrapServers", "ConnectorFile", "need_servers", "open_cursors", "open_session", "read_properties"]

BootstrapServers = Annotated[
    str | None,
    Option(
        envvar="RSCYLLA_KAFKA_BOOTSTRAP_SERVERS",
        metavar="HOST:PORT,...",
        help="Where Kafka is, for a connector.",
        show_default=False,
    ),
]


@attrs.frozen
class ConnectorFile:
    """The files that name a connector, if any."""

    properties: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Properties of a Kafka connector, as for `rscylla kafka run`: they say where its cursors are, and how "
            "to connect, instead of the other options.",
        ),
    ] = None
    worker: Annotated[
        list[Path] | None,
        Option(
            metavar="FILE",
            help="With --properties: properties of the Connect worker, for what FILE does not say; repeat.",
        ),
    ] = None
    bootstrap_servers: BootstrapServers = None

    def read(self) -> Properties | None:
        """Return the properties, None if there is no file. From then on, their secrets are hidden in output.

        Raises:
            ConfigError: a file cannot be read, or a property is wrong.
        """
        if self.properties is None:
            if self.worker:
                raise rscylla.ConfigError("--worker needs --properties FILE, the properties of the connector")
            return None
        properties = read_properties(self.properties, self.worker, self.bootstrap_servers)
        properties.require()
        return properties


def read_properties(file: Path, workers: list[Path] | None, servers: str | None) -> Properties:
    """Return the properties of a connector; *servers* replaces where they say Kafka is. Their secrets are hidden."""
    from rscylla.kafka import Properties

    also = {} if servers is None else {"bootstrap.servers": servers}
    properties = Properties.read(file, *(workers or ()), also=also)
    hide(properties.redacted)
    return properties


def need_servers(properties: Properties) -> None:
    """Raise ``ConfigError`` unless *properties* say where Kafka is."""
    if not properties.get("bootstrap.servers") and "producer.override.bootstrap.servers" not in properties:
        raise rscylla.ConfigError("bootstrap.servers is missing; give --bootstrap-servers HOST:PORT, or --worker FILE")


@contextmanager
def open_session(properties: Properties) -> Iterator[rscylla.Session]:
    """Yield a session to the cluster of the connector, and shut it down at the end."""
    from rscylla.kafka import connect_to

    session = connect_to(properties)
    try:
        yield session
    finally:
        session.cluster.shutdown()


@contextmanager
def open_cursors(properties: Properties) -> Iterator[KafkaCursorStore]:
    """Yield the store of a connector in exactly-once mode, and close it at the end."""
    from rscylla.kafka import cursors_in_kafka

    need_servers(properties)
    with closing(cursors_in_kafka(properties)) as cursors:
        yield cursors
