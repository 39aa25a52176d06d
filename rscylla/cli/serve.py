"""``rscylla serve``: runs the embedded server until a signal stops it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import rscylla

from .shared.failures import reports_errors, stopping
from .shared.options import JsonOutput, Password, PasswordFile, Username, credentials, number
from .shared.output import json_line
from .shared.standard import say, write

if TYPE_CHECKING:
    from rscylla.embedded import EmbeddedScylla

__all__ = ["serve"]


@reports_errors
def serve(
    context: typer.Context,
    port: Annotated[
        int,
        typer.Option(
            parser=number(int, least=0, most=65535), metavar="PORT", help="Port of every node; 0 for any free port."
        ),
    ] = 9042,
    shard_aware_port: Annotated[
        int,
        typer.Option(
            parser=number(int, least=0, most=65535),
            metavar="PORT",
            help="Second port of every node, where the client's own port chooses the shard; 0 for any free port.",
        ),
    ] = 0,
    nodes: Annotated[
        int, typer.Option(parser=number(int, least=1, most=64), metavar="N", help="Number of nodes, 1 to 64.")
    ] = 1,
    shards: Annotated[
        int, typer.Option(parser=number(int, least=1, most=256), metavar="N", help="Number of shards of each node.")
    ] = 2,
    vnodes: Annotated[
        int,
        typer.Option(
            parser=number(int, least=1, most=1024), metavar="N", help="Number of tokens (vnodes) of each node."
        ),
    ] = 8,
    tablets: Annotated[
        bool, typer.Option("--tablets", help="New keyspaces use tablets unless their definition disables them.")
    ] = False,
    username: Username = None,
    password: Password = None,
    password_file: PasswordFile = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="Accept TLS only; PEM file of the nodes' certificate."),
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="PEM file of its key.")] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            "--tls-ca", metavar="FILE", help="Require client certificates that this authority signed; PEM file."
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="DIR", help="Keep all data in this directory, over restarts and kill -9."),
    ] = None,
    fsync: Annotated[
        bool,
        typer.Option("--fsync", help="Acknowledge a write when it is on disk, so it survives a crash of the machine."),
    ] = False,
    skip_broken: Annotated[
        bool,
        typer.Option(
            "--skip-broken", help="Leave out records of the data directory that cannot be replayed, for good."
        ),
    ] = False,
    scylla_version: Annotated[
        Literal["4.3", "4.4"] | None,
        typer.Option(
            metavar="VERSION", help="Describe generations as Scylla 4.3 (until `ctl upgrade`) or 4.4 does; no tablets."
        ),
    ] = None,
    clock: Annotated[
        Literal["system", "manual"],
        typer.Option(
            metavar="CLOCK",
            help="system, or manual: a clock that stands still until `ctl advance`; clients must let the server stamp "
            "their writes.",
        ),
    ] = "system",
    control: Annotated[
        Path | None,
        typer.Option(
            "--control", metavar="PATH", help="Path of the control socket; default: where `ctl --port` looks for it."
        ),
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
    from rscylla.embedded import EmbeddedScylla, ManualClock, Tls  # imports packages that other commands do not need

    username, password = credentials(username, password, password_file)
    if (tls_cert is None) != (tls_key is None) or (tls_ca is not None and tls_cert is None):
        raise rscylla.ConfigError("--tls-cert and --tls-key require each other, and --tls-ca requires both")
    tls = Tls(tls_cert, tls_key, tls_ca) if tls_cert is not None and tls_key is not None else None
    if (fsync or skip_broken) and data_dir is None:
        flag = "--fsync" if fsync else "--skip-broken"
        raise rscylla.ConfigError(f"{flag} requires --data-dir DIR; without it, data is in memory only")
    users = {username: password} if username is not None and password is not None else None
    server = EmbeddedScylla(
        nodes,
        port=port,
        shard_aware_port=shard_aware_port,
        shards=shards,
        vnodes=vnodes,
        tablets=tablets,
        users=users,
        tls=tls,
        data_dir=data_dir,
        fsync=fsync,
        skip_broken=skip_broken,
        version=scylla_version,
        clock=ManualClock(datetime.now(UTC)) if clock == "manual" else None,
    )
    with stopping() as stop, server as scylla:
        _open_control(scylla, control)
        addresses = scylla.contact_points
        if as_json:
            ports = {"port": scylla.port, "shard_aware_port": scylla.shard_aware_port}
            socket = None if scylla.control_path is None else str(scylla.control_path)
            write(json_line({"host": addresses[0], **ports, "contact_points": addresses, "control": socket}))
        else:
            how = "no control socket" if scylla.control_path is None else f"control socket {scylla.control_path}"
            where = "in memory only" if data_dir is None else f"kept in {data_dir}"
            write(
                f"embedded Scylla for development and tests listens on {', '.join(addresses)}, port {scylla.port}; "
                f"{how}; data is {where}; Ctrl-C stops it"
            )
        stop.wait()


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
    sources = {name: context.get_parameter_source(name) for name in context.params}
    # By name: the class is that of click, which typer may have bundled.
    given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise rscylla.ConfigError(f"{option} has no effect on `ctl`; give options after the command of `ctl`")
