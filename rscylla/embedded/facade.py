"""`EmbeddedScylla`: an embedded cluster in a thread, which its owner starts, uses, changes, and stops."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import attrs

from .clock import Clock, ManualClock, SystemClock, milliseconds
from .cluster.descriptions import Rewriting
from .cluster.topology import Cluster
from .control.commands import answer
from .control.faults import FaultControl
from .control.sockets import ControlSocket, control_path
from .durability.durable import Durable
from .engine.engine import Engine
from .errors import EmbeddedScyllaError
from .faults.board import FaultBoard
from .faults.rules import Faults
from .loopthread import LoopThread
from .options import ServerOptions
from .result import UNSET, QueryParams, RowsResult
from .sessions import Sessions
from .status import moment, status
from .storage.packed import cut_row
from .wire.interfaces import Ports, WireOptions
from .wire.server import Server

if TYPE_CHECKING:
    from cassandra.cluster import Session

__all__ = ["EmbeddedScylla"]

log = logging.getLogger("rscylla.embedded")

T = TypeVar("T")

_PORT_ATTEMPTS: Final = 16  # a port that is free on the first address can be taken on the next one
_LAST_S: Final = datetime(9000, 1, 1, tzinfo=UTC).timestamp()


@attrs.define(eq=False, repr=False, slots=False)
class EmbeddedScylla(ServerOptions):
    """
    A server on loopback that behaves like ScyllaDB, for development and tests: native protocol, CQL, CDC logs,
    generations.

    Each node listens on its own address, 127.0.0.1, 127.0.0.2, and so on, all on the same port. All data is in memory
    and lost when the process ends, unless it has a ``data_dir``. Every method is thread-safe. An unsupported feature
    raises an error that names it.

    Args:
        nodes: Number of nodes at the start.
        port: Port of every node; with 0, the system chooses it.
        shards: Number of shards of a node, which is also the number of CDC streams of a vnode.
        vnodes: Number of tokens of a node.
        clock: Clock of the nodes, and of the write timestamps of sessions from `connect`; default: the machine's clock.
        users: Passwords by user name; None disables logins.
        tls: Certificate and key of the nodes, which then accept only TLS; with an authority for clients, mutual TLS.
        seed: Makes host ids, tokens, and stream ids repeatable.
        ring_delay: A new generation starts twice this time plus five seconds after it is created.
        tablets: Whether new keyspaces use tablets if their definition has no ``tablets = {'enabled': ...}``; default:
            as in the ``version``.
        version: The release of ScyllaDB to imitate, one of ``rscylla.embedded.RELEASES``, with its defaults; None for
            the newest one, but with vnodes by default, or for that of the data in ``data_dir``. What is imitated of
            each is in `rscylla.embedded.versions`.
        data_dir: A directory for data, schema, nodes, and stream ids, which then survive the process, even if it is
            killed. Existing data overrides ``nodes``, ``shards``, ``vnodes``, and ``seed``, and must be of the
            ``version`` if that is given; pass the others as before.
        fsync: Answer a write only when it is on disk. Without it, an answered write survives the death of the process,
            but the last seconds may be lost if the machine crashes.
        skip_broken: Open ``data_dir`` without the records that cannot be replayed, and leave them out for good, with an
            error in the log for each. Without it, the first one is a `DataDirError` that says where it is.
        compact_bytes: Size of the log in ``data_dir`` after which a snapshot replaces it.
        shard_aware: Report shards to clients, as Scylla does; clients then open one connection per shard.
        shard_aware_port: A second port of every node, where the client's own port, modulo the number of shards, is the
            shard of the connection; with 0, the system chooses it; None for none. Clients are told of it.
        compression: Compress answers for clients that request it. Requires ``lz4``; on loopback, it only costs time.
        max_frame: The largest request accepted, in bytes.
        max_connections: Maximum number of clients. If one more comes, the oldest that has not logged in gives way; none
            may take longer than a minute to log in.
        control: Take commands from other processes on a Unix socket, which only its owner can use: the path of the
            socket, or True for one that ``rscylla serve ctl`` and `ControlClient.at_port` find by the port.

    >>> with EmbeddedScylla() as scylla:
    ...     scylla.execute("SELECT cluster_name FROM system.local WHERE key = 'local'")
    [{'cluster_name': 'embedded'}]
    """

    _nodes: int = 1
    _given_clock: Clock | None = attrs.field(default=None, alias="clock", kw_only=True)
    clock: Clock = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.clock = self._given_clock or SystemClock()
        self._cluster = Cluster(
            self._nodes,
            shards=self.shards,
            vnodes=self.vnodes,
            seed=self.seed,
            clock=self.clock,
            ring_delay_ms=milliseconds(self.ring_delay),
            tablets=self.tablets,
            version=self.version,
        )
        wire = WireOptions(
            users=self.users,
            shard_aware=self.shard_aware,
            compression=self.compression,
            max_frame=self.max_frame,
            max_connections=self.max_connections,
            tls=None if self.tls is None else self.tls.server_context(),
            offers=lambda extension: self._cluster.release.has(extension),
        )
        self._ports: Ports | None = None
        self._engine = Engine(self._cluster, self.clock, self.users)
        self._durable: Durable | None = None
        if self.data_dir is not None:
            self._durable = Durable(
                self.data_dir,
                self._engine,
                sync=self.fsync,
                compact_bytes=self.compact_bytes,
                skip_broken=self.skip_broken,
            )
        # One board for two users: the wire asks it about requests, the engine about writes.
        self._board = FaultBoard(self._engine.is_current)
        self._engine.writer.faults = self._board
        self._server = Server(self._engine, wire, self._board, self.clock)
        self._engine.show(self._server)
        self._faults = FaultControl(self._cluster, self._server, self._board, self._listening)
        self._sessions = Sessions(self.users, self.tls, self._given_clock)
        self._control: ControlSocket | None = None
        self._loop = LoopThread()

    # ------------------------------------------------------------ life

    def start(self) -> Self:
        """Listen, and return when clients can connect.

        A stopped server starts again with its data, and on the same port if *port* was given.

        Raises:
            EmbeddedScyllaError: The server is already running, an address or port is not available, or the data
                directory is in use, damaged, or not writable.
        """
        self._loop.start()
        try:
            self._loop.wait(self._open())
            if self.control is not False:
                self.open_control(self.control)
        except BaseException:
            self.stop()
            raise
        log.info(
            "embedded Scylla for development and tests (%s) listens on %s, port %d",
            "data in memory, no durability" if self._durable is None else f"data in {self._durable.path}",
            ", ".join(self.contact_points),
            self.port,
        )
        return self

    def stop(self) -> None:
        """Close the sessions opened by `connect`, disconnect all clients, and end the thread. May be repeated."""
        # First the sessions: drivers whose connections are cut would try to connect again.
        self._sessions.close()
        # It belongs to the loop's thread as long as that lives.
        if self._loop.stop(self._close) and self._durable is not None:
            self._durable.close()

    def __enter__(self) -> Self:
        """Start the server if it is not running."""
        return self if self._loop.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def open_control(self, path: Path | bool = True) -> None:
        """Take commands on a control socket until the server stops; ``path`` as the argument ``control``.

        Raises EmbeddedScyllaError if it cannot be opened.
        """
        self._loop.wait(self._take_commands(path))

    async def _take_commands(self, path: Path | bool) -> None:
        if self._control is not None:
            raise EmbeddedScyllaError(f"the server has the control socket {str(self._control.path)!r} already")
        place = path if isinstance(path, Path) else control_path(self.port)
        control = ControlSocket(place, lambda line: answer(self, line))
        await control.open()
        self._control = control

    async def _close(self) -> None:
        if self._control is not None:
            await self._control.close()
            self._control = None
        await self._server.close_all()

    async def _open(self) -> None:
        # Before the first socket: no client may meet the server without its data.
        if self._durable is not None:
            self._durable.open()
        attempts = 1 if self._wanted_port and self._wanted_shard_aware_port != 0 else _PORT_ATTEMPTS
        # The system chooses a port that is free on the first address; all others need the same one.
        for left in reversed(range(attempts)):
            try:
                await self._listen_all()
            except OSError as error:
                # The nodes that got this port let go of it before another one is tried.
                self._server.close()
                if error.errno != errno.EADDRINUSE or not left:
                    raise EmbeddedScyllaError(
                        f"the embedded server cannot listen on {self._cluster.nodes[0].address} port "
                        f"{self._wanted_port} with {len(self._cluster.nodes)} node(s): {error.strerror}; "
                        "choose another port, or port=0 for any free one"
                    ) from error
            else:
                return

    async def _listen_all(self) -> None:
        ports = Ports(self._wanted_port, self._wanted_shard_aware_port if self.shard_aware else None)
        for node in self._cluster.nodes:
            ports = await self._server.listen(node, ports)
        self._ports = attrs.evolve(ports, shard_aware_is_fixed=bool(self._wanted_shard_aware_port))

    def _listening(self) -> Ports:
        if self._ports is None:
            raise EmbeddedScyllaError("the embedded server has no port before it is started; call start()")
        return self._ports

    # ------------------------------------------------------------ use

    @property
    def contact_points(self) -> list[str]:
        """Addresses of the current nodes."""
        return [node.address for node in tuple(self._cluster.nodes)]

    @property
    def listening_nodes(self) -> list[str]:
        """Addresses of the current nodes that listen: those that no fault has stopped."""
        return self._loop.run(lambda: [n.address for n in self._cluster.nodes if self._server.listens(n.index)])

    @property
    def port(self) -> int:
        """The port that all nodes listen on. EmbeddedScyllaError before the first start."""
        return self._listening().cql

    @property
    def shard_aware_port(self) -> int | None:
        """The port of all nodes that gives a client the shard of its own port; None for none. See `port`.

        If it was chosen by the system and is taken when a node is added or started again, that node has another one,
        of which it tells its clients.
        """
        return self._listening().shard_aware

    @property
    def control_path(self) -> Path | None:
        """The control socket of the running server; None if it has none."""
        return None if self._control is None else self._control.path

    def status(self) -> dict[str, Any]:
        """Return the state of the server as plain values, which JSON can hold.

        ``port``, ``shard_aware_port``, ``version``, ``time``, ``clock`` (``"system"`` or ``"manual"``), ``data_dir``;
        ``nodes``: address, host id, tokens, state (``up``, ``stopped``, ``stalled``, ``slow``), clock skew, and the
        connections of each shard; ``generations``: time and number of streams; ``tables``: the tablets and stream sets
        of each table with tablets and CDC; ``faults``: the rules that may still strike; ``held_writes``: how many.
        """
        return self._loop.run(
            lambda: status(self._cluster, self._server, self._board, self._listening(), self.data_dir)
        )

    def connect(self, keyspace: str | None = None, **options: Any) -> Session:
        """Return a new scylla-driver session; `stop` closes it.

        ``options`` go to ``cassandra.cluster.Cluster`` and win over what is set here. With ``users``, the first of
        them logs in unless an ``auth_provider`` is given. Raises what the driver raises.
        """
        return self._sessions.connect(self.listening_nodes or self.contact_points, self.port, keyspace, options)

    def advance(self, by: timedelta) -> None:
        """Advance the clock.

        Raises EmbeddedScyllaError if it is no `ManualClock`, and ValueError for a time beyond the year 9000.
        """
        if not isinstance(self.clock, ManualClock):
            raise EmbeddedScyllaError(
                "the server runs on the machine's clock; start it with --clock manual, or with a ManualClock"
            )
        if self.clock.now_us() / 1e6 + by.total_seconds() > _LAST_S:
            raise ValueError("the clock cannot pass the year 9000")
        self.clock.advance(by)

    @property
    def faults(self) -> Faults:
        """Faults to inject into this cluster: nodes that stop or hang, errors, lost connections."""
        return Faults(self.call_fault)

    def call_fault(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Do one thing that `Faults` asks for; arguments and result are JSON. Raises what `Faults` says."""
        return self._loop.wait(self._faults.call(name, arguments))

    def execute(self, cql: str, values: Sequence[Any] = (), *, keyspace: str | None = None) -> list[dict[str, Any]]:
        """Run one statement inside the server, past the protocol; return all its rows by column name.

        Values are natural Python values, of the kinds that ``CqlType.encode`` takes; ``UNSET`` leaves a marker unset.
        Raises `CqlError` as a client would be told.
        """
        return self._loop.run(lambda: self._execute(cql, values, keyspace))

    def _execute(self, cql: str, values: Sequence[Any], keyspace: str | None) -> list[dict[str, Any]]:
        prepared = self._engine.prepare(cql, keyspace)
        if len(values) != len(prepared.variables):
            raise ValueError(f"the statement has {len(prepared.variables)} bind markers, but got {len(values)} values")
        given = zip(prepared.variables, values, strict=True)
        bound = [value if value is None or value is UNSET else spec.type.encode(value) for spec, value in given]
        params = QueryParams(keyspace=keyspace, node=self._cluster.nodes[0].index)
        result = self._engine.execute(prepared, bound, params)
        if not isinstance(result, RowsResult):
            return []
        columns = result.columns
        rows = [zip(columns, cut_row(row), strict=True) for row in result.rows]
        return [{c.name: None if cell is None else c.type.decode(cell) for c, cell in row} for row in rows]

    def expire_rows(self) -> int:
        """Delete the rows that have expired by their table's TTL column (``CREATE TABLE ... (at timestamp TTL)``).

        Scylla's expiration service does this periodically. Returns the number of deleted rows. CDC logs show these
        deletes as operations -3 and -4.
        """
        return self._loop.run(self._engine.writer.expire_rows)

    # ------------------------------------------------------------ topology

    def add_node(self, delay: timedelta | None = None) -> str:
        """Add a node: it listens, clients get events, and a new CDC generation is created. Return its address.

        Args:
            delay: Time until the generation starts; default: Scylla's rule, twice the ring delay plus five seconds.

        Raises:
            EmbeddedScyllaError: Its address or port is not available, or the generation would not start after all
                others.
        """
        return self._loop.wait(self._add_node(None if delay is None else milliseconds(delay)))

    async def _add_node(self, delay_ms: int | None) -> str:
        try:
            node = self._cluster.add_node(delay_ms)
        except ValueError as error:
            raise EmbeddedScyllaError(str(error)) from error
        try:
            await self._server.listen(node, self._listening())
        except OSError as error:
            self._cluster.remove_node(node.index)
            raise EmbeddedScyllaError(
                f"a new node cannot listen on {node.address} port {self.port}: {error.strerror}; free that port"
            ) from error
        # Once it listens: drivers connect as soon as they hear of it.
        self._server.announce_topology("NEW_NODE", node, self.port)
        self._server.announce_status("UP", node, self.port)
        return node.address

    def remove_node(self, address: str) -> None:
        """Remove a node: its connections are closed, and clients of the other nodes get events.

        Raises EmbeddedScyllaError if no node has the address, and for the last node.
        """
        self._loop.run(lambda: self._remove_node(address))

    def _remove_node(self, address: str) -> None:
        node = self._cluster.node_at(address)
        try:
            self._cluster.remove_node(node.index)
        except ValueError as error:
            raise EmbeddedScyllaError(str(error)) from error
        self._server.hang_up(node.index)
        self._server.announce_status("DOWN", node, self.port)
        self._server.announce_topology("REMOVED_NODE", node, self.port)

    def new_generation(self, delay: timedelta | None = None) -> datetime:
        """Create a CDC generation for the current nodes, as ``nodetool checkAndRepairCdcStreams`` does.

        Returns the time at which it starts. Raises EmbeddedScyllaError if it would not start after all others.
        """
        delay_ms = None if delay is None else milliseconds(delay)
        return moment(self._on_loop(lambda: self._cluster.new_generation(delay_ms).time_ms))

    def split_tablets(self, keyspace: str, table: str, delay: timedelta | None = None) -> datetime:
        """Split each tablet of a base table in two, which gives the table a new set of streams; return its time.

        Args:
            keyspace, table: Names as stored, without quotes.
            delay: Time until the set starts; default: Scylla's rule, twice the ring delay plus five seconds. The set
                always
                starts after the previous one.

        Raises:
            EmbeddedScyllaError: The table has no CDC log, its keyspace has no tablets, or there would be too many
                tablets.
        """
        return self._resize_tablets(keyspace, table, 2, delay)

    def merge_tablets(self, keyspace: str, table: str, delay: timedelta | None = None) -> datetime:
        """Merge the tablets of a base table two by two; see `split_tablets`. A single tablet cannot be merged."""
        return self._resize_tablets(keyspace, table, 0.5, delay)

    def _resize_tablets(self, keyspace: str, table: str, factor: float, delay: timedelta | None) -> datetime:
        delay_ms = None if delay is None else milliseconds(delay)
        tablets = self._cluster.tablets
        made = self._on_loop(lambda: tablets.resize(keyspace, table, factor, self.clock.now_us(), delay_ms))
        return moment(made.time_ms)

    def upgrade(self, rewriting: Rewriting = "done") -> None:
        """Upgrade a cluster of version 4.3 to 4.4: the new description tables appear beside the old one.

        Args:
            rewriting: ``"done"``: all generations are in the new tables, and ``system.cdc_local`` says ``rewritten``.
                ``"held"``: only the newest is, until `finish_rewriting`. ``"disabled"``: only the newest ever is. New
                generations are described only in the new tables.

        Raises EmbeddedScyllaError if the cluster is not of version 4.3.
        """
        self._on_loop(lambda: self._engine.upgrade(rewriting))

    def finish_rewriting(self) -> None:
        """Copy the generations that ``upgrade("held")`` omitted. Raises EmbeddedScyllaError if there are none."""
        self._on_loop(self._cluster.finish_rewriting)

    def _on_loop(self, work: Callable[[], T]) -> T:
        """Run ``work`` on the loop's thread; what it finds wrong is the caller's to know."""
        try:
            return self._loop.run(work)
        except ValueError as error:
            raise EmbeddedScyllaError(str(error)) from error
