"""The options of an embedded server, which are those of both its doors: in a thread, and in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs

from .durability.durable import COMPACT_BYTES
from .versions import Version
from .wire.tls import Tls

__all__ = ["ServerOptions"]


def _path(value: str | os.PathLike[str] | None) -> Path | None:
    return None if value is None else Path(value)


def _control(value: str | os.PathLike[str] | bool) -> Path | bool:
    return value if isinstance(value, bool) else Path(value)


@attrs.define(kw_only=True, eq=False, repr=False, slots=False)
class ServerOptions:
    """The arguments that `EmbeddedScylla`, which describes them, shares with `EmbeddedScyllaProcess`."""

    _wanted_port: int = attrs.field(default=0, alias="port")  # ``port`` is the one that the nodes listen on
    shards: int = 2
    vnodes: int = 8
    users: Mapping[str, str] | None = None
    tls: Tls | None = None
    seed: int | None = None
    ring_delay: timedelta = timedelta(seconds=30)
    tablets: bool | None = None
    version: Version | None = None
    data_dir: Path | None = attrs.field(default=None, converter=_path)
    fsync: bool = False
    skip_broken: bool = False
    compact_bytes: int = COMPACT_BYTES
    shard_aware: bool = True
    _wanted_shard_aware_port: int | None = attrs.field(default=0, alias="shard_aware_port")
    compression: bool = False
    max_frame: int = 256 * 1024 * 1024
    max_connections: int = 8192
    control: Path | bool = attrs.field(default=False, converter=_control)

    def __attrs_post_init__(self) -> None:
        if self.users is not None:
            if not self.users:
                raise ValueError("users is empty, so no client could log in; omit it to disable logins")
            self.users = dict(self.users)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of another server with the same options. They can be pickled."""
        return {field.alias or field.name: getattr(self, field.name) for field in attrs.fields(ServerOptions)}
