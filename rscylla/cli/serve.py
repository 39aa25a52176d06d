"""``rscylla serve``: runs the embedded server until a signal stops it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import attrs
import typer
from typer import Option

import rscylla
from rscylla.embedded import Version
from rscylla.embedded.versions import Release

from .shared.failures import stopping
from .shared.options import JsonOutput, Login, command
from .shared.output import show
from .shared.standard import say

if TYPE_CHECKING:
    from rscylla.embedded import EmbeddedScylla, Tls

__all__ = ["serve"]


@attrs.frozen
class _Cluster:
    """Options that ``EmbeddedScylla`` takes as they are."""

    port: Annotated[int, Option(min=0, max=65535, metavar="PORT", help="Port of every node; 0 for any free port.")] = (
        9042
    )
    shard_aware_port: Annotated[
        int,
        Option(
            min=0,
            max=65535,
            metavar="PORT",
            help="Second port of every node, where the client's own port chooses the shard; 0 for any free port.",
        ),
    ] = 0
    nodes: Annotated[int, Option(min=1, max=64, metavar="N", help="Number of nodes, 1 to 64.")] = 1
    shards: Annotated[int, Option(min=1, max=256, metavar="N", help="Number of shards of each node.")] = 2
    vnodes: Annotated[int, Option(min=1, max=1024, metavar="N", help="Number of tokens (vnodes) of each node.")] = 8
    tablets: Annotated[
        bool | None,
        Option(
            "--tablets/--no-tablets",
            help="Whether new keyspaces use tablets unless their definition says it; default: as in --scylla-version.",
        ),
    ] = None
    data_dir: Annotated[
        Path | None, Option(metavar="DIR", help="Keep all data in this directory, over restarts and kill -9.")
    ] = None
    fsync: Annotated[
        bool, Option("--fsync", help="Acknowledge a write when it is on disk, so it survives a crash of the machine.")
    ] = False
    skip_broken: Annotated[
        bool,
        Option("--skip-broken", help="Leave out records of the data directory that cannot be replayed, for good."),
    ] = False
    version: Annotated[
        Version | None,
        Option(
            "--scylla-version",
            metavar="VERSION",
            help="Imitate this release of ScyllaDB, with its defaults; default: the newest one, but with vnodes.",
        ),
    ] = None

    def __attrs_post_init__(self) -> None:
        if (self.fsync or self.skip_broken) and self.data_dir is None:
            flag = "--fsync" if self.fsync else "--skip-broken"
            raise rscylla.ConfigError(f"{flag} requires --data-dir DIR; without it, data is in memory only")
        if self.tablets and not Release(self.version).has("tablets"):
            raise rscylla.ConfigError(
                f"--tablets: ScyllaDB {self.version} has no tablets; leave it out, or give a later --scylla-version"
            )


@attrs.frozen
class _Tls:
    """The options of TLS."""

    tls_cert: Annotated[
        Path | None, Option(metavar="FILE", help="Accept TLS only; PEM file of the nodes' certificate.")
    ] = None
    tls_key: Annotated[Path | None, Option(metavar="FILE", help="PEM file of its key.")] = None
    tls_ca: Annotated[
        Path | None, Option(metavar="FILE", help="Require client certificates that this authority signed; PEM file.")
    ] = None

    def made(self) -> Tls | None:
        from rscylla.embedded import Tls

        if self.tls_cert is not None and self.tls_key is not None:
            return Tls(self.tls_cert, self.tls_key, self.tls_ca)
        if self.tls_cert or self.tls_key or self.tls_ca:
            raise rscylla.ConfigError("--tls-cert and --tls-key require each other, and --tls-ca requires both")
        return None


@command
def serve(
    context: typer.Context,
    cluster: _Cluster,
    login: Login,
    tls: _Tls,
    clock: Annotated[
        Literal["system", "manual"],
        Option(
            metavar="CLOCK",
            help="system, or manual: a clock that stands still until `ctl advance`; clients must let the server stamp "
            "their writes.",
        ),
    ] = "system",
    control: Annotated[
        Path | None,
        Option(metavar="PATH", help="Path of the control socket; default: where `ctl --port` looks for it."),
    ] = None,
    as_json: JsonOutput = False,
) -> None:
    """Run an embedded Scylla until Ctrl-C or SIGTERM.

    For development and tests. Nodes listen on 127.0.0.1, 127.0.0.2, and so on. All data is in memory and lost at the
    end, unless --data-dir keeps it; the data in a directory determines the number of nodes, shards, and vnodes. With
    --username, only that user can connect. While the server runs, `rscylla serve ctl` controls it.
    """
    if context.invoked_subcommand is not None:
        _refuse_options(context)
        return
    from rscylla.embedded import EmbeddedScylla, ManualClock  # imports packages that other commands do not need

    username, password = login.credentials()
    server = EmbeddedScylla(
        **attrs.asdict(cluster),
        users=None if username is None or password is None else {username: password},
        tls=tls.made(),
        clock=ManualClock(datetime.now(UTC)) if clock == "manual" else None,
    )
    with stopping() as stop, server as scylla:
        _open_control(scylla, control)
        _show(scylla, cluster.data_dir, as_json=as_json)
        stop.wait()


def _show(scylla: EmbeddedScylla, data_dir: Path | None, *, as_json: bool) -> None:
    addresses, socket = scylla.contact_points, scylla.control_path
    how = "no control socket" if socket is None else f"control socket {socket}"
    where = "in memory only" if data_dir is None else f"kept in {data_dir}"
    text = (
        f"embedded Scylla for development and tests listens on {', '.join(addresses)}, port {scylla.port}; "
        f"{how}; data is {where}; Ctrl-C stops it"
    )
    ports = {"port": scylla.port, "shard_aware_port": scylla.shard_aware_port}
    path = None if socket is None else str(socket)
    show({"host": addresses[0], **ports, "contact_points": addresses, "control": path}, text, as_json=as_json)


def _open_control(scylla: EmbeddedScylla, path: Path | None) -> None:
    """Open the control socket at *path*, or by default where ``ctl --port`` looks for it, if that is possible."""
    from rscylla.embedded import EmbeddedScyllaError

    try:
        scylla.open_control(path or True)
    except (EmbeddedScyllaError, OSError) as error:
        if path is not None:
            raise
        # Clients of the database do not need it.
        say(f"warning: `rscylla serve ctl` cannot control this server: {error}")


def _refuse_options(context: typer.Context) -> None:
    """Refuse options in front of the subcommand: they would have no effect."""
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        # By name: the class is that of click, which typer may have bundled.
        if source is not None and source.name == "COMMANDLINE":
            name = option.opts[0]
            raise rscylla.ConfigError(f"{name} has no effect on `ctl`; give options after the command of `ctl`")
