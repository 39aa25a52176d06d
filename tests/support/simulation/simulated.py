"""One seed of the simulation: the whole stack on a driven clock, under a schedule of writes, restarts and faults.

The seed picks what the streams follow (vnodes with new generations and nodes, tablets that are split and merged, a
cluster of 4.3 that is upgraded meanwhile), who shares the table, where cursors are kept, and everything that happens.

The oracle is the list of writes that the server accepted: every one is delivered, in order per partition key, and the
saved cursor never passes a write that was not.

What is repeatable: a seed has a server, a driver and a clock of its own, and one thing happens at a time, the server's
and the driver's background work included (see ``wire.py``); where slices of one process are read together (a quarter
of the seeds, see ``simulated_sharing.py``), their threads take turns by dice (``turns.py``). So a seed gives the same
schedule, the same faults at the same requests and the same deliveries each time, in whatever company it runs. Two
things are left to the machine: the last reading, where a seed reads ahead in a thread, may interleave with its
consumer; and seeds over sockets (``sockets=True``), which are there so that the ordinary way is not forgotten, are
repeatable in their schedule only.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import attrs
from cassandra import DriverException
from cassandra.cluster import NoHostAvailable
from chaos import Chaos, ClientClock, WorldClock
from simulated_log import LIFE_KINDS, LogLife, Watched
from simulated_schema import SCHEMA_KINDS, Schema
from simulated_sharing import SHARING_KINDS, Process
from waiting import eventually
from wire import WiredScylla
from wrecking import wreck_event

import rscylla
from cursorstore import BufferedCursorStore, MemoryCursorStore, ScyllaCursorStore, reslice_cursors
from rscylla.embedded import CqlError, EmbeddedScylla, EmbeddedScyllaError
from rscylla.embedded.storage.tokens import murmur3_token

__all__ = ["FULL_RUN", "KINDS", "Simulation", "Write", "never_happened", "slice_of"]

LAG_US = 30_000_000
LATEST_US = 27_000_000
"""How late a row may be seen; the rest of the lag is for clocks that disagree."""

KEYSPACE = "sim"
TABLE = f'{KEYSPACE}."Orders"'
PARTITIONS = 12
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

KINDS = (
    *(
        "writes",
        "events",
        "duplicates",
        "late",
        "refused",
        "crashes",
        "kills",
        "fates",
        "failed_runs",
        "restarts",
        "followed_head",
        "wrecked",
    ),
    *("generations", "splits", "merges", "upgrades", "joins", "leaves", "reslices", "alters", "writes_while_reading"),
    "alters_between_pages",
    *("unavailable", "read_timeout", "read_failure", "overloaded", "bootstrapping", "rate_limit", "server_error"),
    *("write_timeout", "unprepared", "cut_connection", "cut_within_answer", "short_page", "empty_page"),
    *("replayed_write", "held_write", "node_stops", "node_skews", "clock_steps_back", "clock_steps_ahead"),
    *("vnodes", "tablets", "legacy", "sockets", "two_nodes"),
    *SCHEMA_KINDS,
    *LIFE_KINDS,
    *SHARING_KINDS,
)
"""What has to happen at least once over many seeds, by the name under which it is counted."""

FULL_RUN = 1_000
"""Seeds from which on everything has to happen."""

MODELS = ("vnodes", "tablets", "vnodes", "tablets", "legacy")

Rewriting = Literal["done", "held", "disabled"]


def never_happened(total: Counter[str]) -> list[str]:
    """Return what never happened in ``total["seeds"]`` seeds, though it should have over so many."""
    return [kind for kind in KINDS if not total[kind]] if total["seeds"] >= FULL_RUN else []


class Crash(Exception):
    """The consumer fails in a way that ends its process."""


@attrs.frozen
class Write:
    """A change as it was accepted: when, on which partition, what the event must say, and in which of the logs."""

    time_us: int
    pk: int
    says: str
    log: int = 1


class Simulation:
    """What one seed makes of a cluster, a table and its consumers. ``run`` gives the counts of what happened."""

    def __init__(self, seed: int, *, sockets: bool = False) -> None:
        self.model = MODELS[seed % len(MODELS)]
        self.dice = random.Random(seed)
        self.seed = seed
        self.violations: list[AssertionError] = []
        self.shares = seed % 4 == 1 and not sockets  # slices of one process are read together
        self.counts_of_slices = (2, 3, 5, 8) if self.shares else (1, 2, 3, 5)
        self.slices = self.dice.choice([2, 3, 5, 8] if self.shares else [1, 1, 1, 2, 3, 5])
        self.tablets = self.first_tablets = 2
        self.rewriting: Rewriting | None = None  # of a cluster of 4.3 that was upgraded
        self.counts = Counter[str]()
        self.written: list[Write] = []
        self.delivered: dict[str, Write] = {}
        self.order: list[Write] = []
        self.fresh = iter(range(1, 1_000_000))
        self.held_since_us: int | None = None
        self.is_reading = False
        self.process: Process | None = None
        self.alters_between_pages = seed % 7 == 6
        self.world = WorldClock()
        self.clock = ClientClock(self.world)
        two = not sockets and self.model != "legacy" and self.dice.random() < 0.4
        options: dict[str, Any] = {"clock": self.world, "seed": seed, "shards": 2, "vnodes": 2}
        if self.model == "legacy":
            options["version"] = "4.3"
        self.scylla: EmbeddedScylla
        self.scylla = EmbeddedScylla(1, **options) if sockets else WiredScylla(1 + two, **options)
        self.chaos = Chaos(self.scylla, self.clock, self.dice, with_connections=not sockets)
        self.schema = Schema(
            KEYSPACE, TABLE, lambda cql: self.scylla.execute(cql), self.world.now_us, self.dice, self.counts
        )
        self.life = LogLife(self)
        self.counts.update({self.model: 1, "sockets": sockets, "two_nodes": two})

    def run(self) -> Counter[str]:
        """Play the schedule, then let everything mend, read to the end, and check."""
        random.seed(self.seed)  # the driver and the back-off draw from the module's own
        with ExitStack() as running:
            running.enter_context(self.scylla)
            self.world.advance(LAG_US / 1e6)  # a late write must not be older than the first generation
            # Over sockets a busy machine may take long; nothing here is about that.
            self.session = self.scylla.connect(connect_timeout=60.0, control_connection_timeout=60.0)
            if self.counts["sockets"]:
                self.session.default_timeout = 60.0
            if self.alters_between_pages:
                self.session.add_request_init_listener(self._before_request)
            self._create()
            self.world.before = self._before_time_passes
            self.clock.before_wait = self._meanwhile
            self.clock.after_wait = self._settle
            steps: list[Callable[[], None]] = [self.write, self.pause, self.consume, self.change_streams, self.reslice]
            steps += [self.alter, self.chaos.strike, self.kill, self.rename_key, self.life.strike]
            weights = [10, 5, 1.7, 0.5, 0.1, 0.8, 2, 0.3, 0.03, 0.7 * self.life.is_eventful]
            if self.alters_between_pages:
                weights[steps.index(self.alter)] = 3
            for _ in range(self.dice.randrange(20, 60) if self.shares else self.dice.randrange(30, 100)):
                self.dice.choices(steps, weights)[0]()
                self._settle()
            self._finish()
        self.check()
        self.counts += self.chaos.counts
        return self.counts

    def _create(self) -> None:
        option = {
            "vnodes": " AND tablets = {'enabled': false}",
            "tablets": f" AND tablets = {{'initial': {self.tablets}}}",
        }.get(self.model, "")
        replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        self.session.execute(f"CREATE KEYSPACE {KEYSPACE} WITH replication = {replication}{option}")
        self.schema.create()
        if self.model == "tablets":
            self.world.advance(LAG_US / 1e6)  # a late write must not be older than the table's first streams
        self.memory = MemoryCursorStore(clock=self.clock)
        self.in_memory = self.dice.random() < 0.6
        self.buffered = self.dice.random() < 0.3
        self._settle()

    def _finish(self) -> None:
        self.clock.before_wait = lambda: None
        self.life.reach_start()
        self.read_all()

    def read_all(self) -> None:
        """Let everything mend, and all consumers read to the head when it has passed what was written."""
        self.deliver_held()
        self.mend_cluster()
        self.world.advance(LAG_US / 1e6 + 1)
        if self.shares and self.dice.random() < 0.7:
            self._share_to_end()
        for index in range(self.slices):
            self._read_to_end(index, attempts=10 if self.counts["sockets"] else 1)

    def _read_to_end(self, index: int, *, attempts: int) -> None:
        """Nothing is broken any more, so one attempt has to do; over sockets, a slow machine still may break it.

        The driver gives a node up that is late with a heartbeat, and comes back to it in real time.
        """
        for left in reversed(range(attempts)):
            try:
                while self.consume_slice(index, to_end=True):
                    self.life.mend(self.names()[index])
            except rscylla.RunError as e:
                if not left or not e.resumable:
                    raise
                eventually(self._node_answers, 60)
            else:
                return

    def _node_answers(self) -> bool:
        try:
            self.session.execute("SELECT key FROM system.local")
        except (NoHostAvailable, DriverException):
            return False
        return True

    def _share_to_end(self) -> None:
        """Let all consumers read to the head in one process, and again after those that were told of a loss go on."""
        while told := Process(self, range(self.slices), to_end=True).run():
            for index in told:
                self.life.mend(self.names()[index])

    def mend_cluster(self) -> None:
        """Set right what is broken, and let the driver see it."""
        self.chaos.mend()
        self._settle()

    # ------------------------------------------------------------ time

    def _settle(self) -> None:
        """Let the driver see what became of the nodes and come back to them."""
        if isinstance(self.scylla, WiredScylla):
            self.scylla.heal(self.session)

    def _before_time_passes(self, seconds: float) -> None:
        """Writes that were held back must be seen while the lag still covers them."""
        since = self.held_since_us
        if since is not None and self.world.now_us() + seconds * 1e6 - since > LATEST_US:
            self.deliver_held()

    def execute(self, cql: str) -> None:
        self.scylla.execute(cql)

    def deliver_held(self) -> None:
        self.held_since_us = None
        self.chaos.deliver_held()

    def _meanwhile(self) -> None:
        """The world goes on while the source waits: to ask for a page again, or for something new at the head."""
        if self.is_reading:
            steps: list[Callable[[], None]] = [lambda: None, self.write, self.alter, self.chaos.strike]
            steps += [self.change_streams, self.pause, self.life.strike]
            self.dice.choices(steps, [5, 5, 0.5, 0.3, 1, 3, 1.5 * self.life.is_eventful])[0]()

    def pause(self) -> None:
        dice = self.dice
        spans = [dice.uniform(0, 0.01), dice.uniform(0, 3), dice.uniform(3, 90), dice.uniform(60, 7200)]
        self.world.advance(dice.choices(spans, [10, 6, 3, 0.3])[0])

    # ------------------------------------------------------------ writing

    def write(self) -> None:
        dice = self.dice
        late_us = int(dice.random() ** 4 * LATEST_US) if dice.random() < 0.3 else 0
        time_us = self.life.late(self.world.now_us() - late_us)
        pk, n = dice.randrange(PARTITIONS), next(self.fresh)
        kind = dice.choice(["insert"] * 5 + ["update"] * 3 + ["static", "row", "range", "partition", "batch"])
        says = [f"{kind} {n}"]
        p, c = self.schema.pk, self.schema.ck
        if kind == "batch":
            rows = [next(self.fresh) for _ in range(dice.randrange(2, 6))]
            says = [f"insert {r}" for r in rows]
            more = [(r, *self.schema.insert(r, time_us)) for r in rows]
            inserts = "".join(
                f"INSERT INTO {TABLE} ({p}, {c}, n{cs}) VALUES ({pk}, {r}, {r}{vs}); " for r, cs, vs in more
            )
            self._accept(f"BEGIN BATCH USING TIMESTAMP {time_us} {inserts} APPLY BATCH", (), time_us, pk, says)
            return
        columns, more_values = self.schema.insert(n, time_us) if kind == "insert" else ("", "")
        edits = self.schema.update(n, time_us) if kind == "update" else ""
        texts = {
            "insert": f"INSERT INTO {TABLE} ({p}, {c}, n{columns}) VALUES (?, ?, ?{more_values}) USING TIMESTAMP ?",
            "update": f"UPDATE {TABLE} USING TIMESTAMP ? SET n = ?{edits} WHERE {p} = ? AND {c} = ?",
            "static": f"UPDATE {TABLE} USING TIMESTAMP ? SET s = ? WHERE {p} = ?",
            "row": f"DELETE FROM {TABLE} USING TIMESTAMP ? WHERE {p} = ? AND {c} = ?",
            "range": f"DELETE FROM {TABLE} USING TIMESTAMP ? WHERE {p} = ? AND {c} >= ? AND {c} < ?",
            "partition": f"DELETE FROM {TABLE} USING TIMESTAMP ? WHERE {p} = ?",
        }
        values: dict[str, tuple[Any, ...]] = {
            "insert": (pk, n, n, time_us),
            "update": (time_us, n, pk, n),
            "static": (time_us, str(n), pk),
            "row": (time_us, pk, n),
            "range": (time_us, pk, n, n + 5),
            "partition": (time_us, pk),
        }
        if kind == "partition":
            says = ["partition"]
        self._accept(texts[kind], values[kind], time_us, pk, says)

    def _accept(self, cql: str, values: tuple[Any, ...], time_us: int, pk: int, says: list[str]) -> None:
        """Execute a write, and keep in mind what has to be delivered for it. No fault of the protocol meets it."""
        replayed, held = self.chaos.replayed(), self.chaos.held()
        try:
            self.scylla.execute(cql, values)
        except CqlError:
            self.counts["refused"] += 1  # a timestamp of a generation that is over, or far off the node's clock
            return
        if self.chaos.held() > held:
            self.held_since_us = time_us if self.held_since_us is None else min(self.held_since_us, time_us)
        writes = [Write(time_us, pk, s, self.life.log) for s in says] * (1 + self.chaos.replayed() - replayed)
        if not self.life.accepts(writes):
            return
        self.written += writes
        for write in writes:
            self.life.accepted(write)
        self.counts["writes"] += len(writes)
        self.counts["late"] += time_us < self.world.now_us()
        self.counts["writes_while_reading"] += self.is_reading

    def alter(self) -> None:
        """Change the schema, also while it is read."""
        if self.life.may_alter():
            self.deliver_held()
            self.schema.alter()
            self.life.altered()

    def _before_request(self, request: Any) -> None:
        """Change the schema before the next page of a window is asked for, so that its pages disagree."""
        is_later_page = (
            request.message.paging_state and "_scylla_cdc_log" in request.query.prepared_statement.query_string
        )
        if self.is_reading and is_later_page and self.dice.random() < 0.3:
            before = self.counts["alters"]
            self.alter()
            self.counts["alters_between_pages"] += self.counts["alters"] - before

    def rename_key(self) -> None:
        """Rename a column of the key after all was read: the log does not tell the keys from before."""
        if self.life.may_rename():
            self.life.settle()
            self.read_all()
            self.schema.rename_key()
            self.life.altered()

    # ------------------------------------------------------------ streams

    def change_streams(self) -> None:
        if self.model == "tablets":
            self.resize_tablets()
        elif self.model == "legacy" and self.dice.random() < 0.5:
            self.upgrade()
        elif self.model == "vnodes" and isinstance(self.scylla, WiredScylla) and self.dice.random() < 0.3:
            self.join_or_leave()
        else:
            self.new_generation()

    def resize_tablets(self) -> None:
        is_split = self.tablets == 1 or (self.tablets < 16 and self.dice.random() < 0.5)
        resize = self.scylla.split_tablets if is_split else self.scylla.merge_tablets
        resize(KEYSPACE, "Orders", self.life.delay())
        self.tablets = self.tablets * 2 if is_split else self.tablets // 2
        self.counts["splits"] += is_split
        self.counts["merges"] += not is_split

    def upgrade(self) -> None:
        if self.rewriting is None:
            choices: list[Rewriting] = ["done", "held", "held", "disabled"]
            self.rewriting = self.dice.choice(choices)
            self.scylla.upgrade(self.rewriting)
            self.counts["upgrades"] += 1
        elif self.rewriting == "held":
            self.scylla.finish_rewriting()
            self.rewriting = "done"

    def join_or_leave(self) -> None:
        nodes = self.scylla.contact_points
        if len(nodes) > 1 and self.chaos.stopped is None and self.dice.random() < 0.5:
            self.scylla.remove_node(nodes[-1])
            self.counts["leaves"] += 1
        elif len(nodes) < 3:
            try:
                self.scylla.add_node(self.life.delay())
            except EmbeddedScyllaError:
                return  # its generation would start before one that is already on its way
            self.counts["joins"] += 1
            self.counts["generations"] += 1

    def new_generation(self) -> None:
        try:
            self.scylla.new_generation(delay=self.life.delay())
        except EmbeddedScyllaError:
            return  # it would start before one that is already on its way
        self.counts["generations"] += 1

    # ------------------------------------------------------------ reading

    def new_store(self) -> Any:
        """Return a store as a new process opens it; what is in the database, or in memory, is everybody's."""
        if self.in_memory:
            return self.memory
        return ScyllaCursorStore(self.session, KEYSPACE, create=True, clock=self.clock)

    def store_of(self, index: int) -> Any:
        checked = CheckedStore(self, self.new_store(), index)
        return BufferedCursorStore(checked, background=False, clock=self.clock) if self.buffered else checked

    def names(self) -> list[str]:
        """Return the names of the consumers that share the table."""
        return [rscylla.slice_name("sim", i, self.slices) for i in range(self.slices)]

    def stream_of(self, index: int, *, to_end: bool = False) -> Any:
        """Return a stream that reads in a way of its own; the last ones take larger steps, for they have far to go."""
        name = self.names()[index]
        on_expired = self.life.policy(name)
        prefetch = self.dice.choice([0, 0, 1]) if to_end else 0
        stream = self.new_stream(to_end=to_end, prefetch=prefetch, on_expired=on_expired)
        return Watched(attrs.evolve(stream, key_slice=(index, self.slices)), self.life, name, on_expired)

    def new_stream(self, *, to_end: bool, **options: Any) -> rscylla.Stream:
        """Return a stream of the whole table."""
        dice = self.dice
        return rscylla.NewStream(
            self.session,
            KEYSPACE,
            "Orders",
            streams_per_query=dice.choice([3, 100] if to_end else [1, 3, 16, 100]),
            limits=rscylla.Limits(
                page_size=dice.choice(
                    [7, 5000] if to_end else [1, 2] if self.alters_between_pages else [1, 2, 7, 5000]
                ),
                in_flight=dice.choice([1, 2, 16]),
                window_rows=dice.choice([50, 100_000] if to_end or self.alters_between_pages else [1, 5, 50, 100_000]),
            ),
            poll=timedelta(seconds=dice.choice([1, 3])),
            progress_every=timedelta(seconds=dice.choice([0, 10, 60])),
            clock=self.clock,
            **options,
        )

    def consume(self) -> None:
        """Run one of the consumers that share the table, or several in one process."""
        if self.shares and self.slices > 1 and self.dice.random() < 0.8:
            count = self.dice.randrange(2, self.slices + 1)
            for index in Process(self, self.dice.sample(range(self.slices), count)).run():
                if self.dice.random() < 0.5:
                    self.life.mend(self.names()[index])
            return
        index = self.dice.randrange(self.slices)
        if self.consume_slice(index) and self.dice.random() < 0.5:
            self.life.mend(self.names()[index])

    def reslice(self) -> None:
        """Share the table between another number of consumers, from where the old ones are."""
        self.mend_cluster()
        store = self.new_store()
        if not all(self.life.is_of_this_log(store.get_cursor(name)) for name in self.names()):
            return
        count = self.dice.choice([n for n in self.counts_of_slices if n != self.slices])
        for name in self.names():
            if store.find_cursor(name) is None:
                store.reset_cursor(name, "", reason="it never ran")
        reslice_cursors(store, "sim", self.slices, count, rewind=True)
        self.slices = count
        self.life.resliced(self.names())
        self.counts["reslices"] += 1

    def consume_slice(self, index: int, *, to_end: bool = False) -> bool:
        """Run a new consumer, as a new process would, until the head or a time to come, an error, or a crash.

        Return whether it was told that changes are lost.
        """
        left = self.dice.randrange(1, 60)
        self.is_reading = not to_end
        try:
            return self.run_consumer(index, self.stream_of(index, to_end=to_end), self.end(to_end), left, to_end=to_end)
        finally:
            self.end_reading()

    def end(self, to_end: bool) -> Any:
        """Return where a consumer ends: at the head, or for some at a time to come."""
        dice = self.dice
        if to_end or dice.random() >= (0.5 if self.life.is_eventful else 0.15):
            return rscylla.StreamToHead()
        self.counts["followed_head"] += 1
        now = EPOCH + timedelta(microseconds=self.clock.now_us())
        return rscylla.StreamUntil(now + timedelta(seconds=dice.uniform(0, 150)))

    def run_consumer(self, index: int, stream: Any, end: Any, left: int, *, to_end: bool) -> bool:
        """Run a consumer that crashes after *left* events, unless it reads *to_end*; return as ``consume_slice``."""
        name = self.names()[index]

        def on_event(event: rscylla.Event, fate: rscylla.Fate) -> None:
            nonlocal left
            self.deliver(name, event)
            fate.tempt("simulated")
            left -= 1
            if left == 0 and not to_end:
                raise Crash

        spec = rscylla.Spec(
            stream,
            self.store_of(index),
            rscylla.Consumer(name, on_event, registry=None),
            rscylla.StreamLag(seconds=LAG_US / 1e6),
            end,
            fate=rscylla.reflex.NO_FATE if to_end else rscylla.Fate(0.02, seed=self.dice.randrange(2**32)),
            clock=self.clock,
        )
        self.counts["restarts"] += 1
        try:
            rscylla.run(spec)
        except rscylla.HeadReached:
            pass
        except rscylla.RunError as e:
            if self.life.told(name, e.__cause__):
                return True
            self._count_failure(e, to_end=to_end)
        return False

    def _count_failure(self, e: rscylla.RunError, *, to_end: bool) -> None:
        if isinstance(e.__cause__, Crash):
            self.counts["crashes"] += 1
        elif isinstance(e.__cause__, rscylla.errors.FateError):
            self.counts["fates"] += 1
        elif e.resumable and not to_end:
            self.counts["failed_runs"] += 1  # the cluster was broken for longer than the source is patient
        else:
            raise e

    def kill(self) -> None:
        """Run a consumer whose process is killed at some event: nothing is closed or flushed, and all it knew is gone.

        Without the engine, which would close the stream on its way out.
        """
        index, left = self.dice.randrange(self.slices), self.dice.randrange(1, 30)
        store = self.store_of(index)
        name = self.names()[index]
        self.is_reading = True
        try:
            lag = rscylla.StreamLag(seconds=LAG_US / 1e6)
            client = self.stream_of(index)(store.get_cursor(name), lag, rscylla.StreamToHead())
            while left:
                item = client.recv()
                left -= 1
                if isinstance(item, rscylla.Progress):
                    store.set_cursor(name, item.cursor)
                    continue
                self.deliver(name, item)
                if left:
                    store.set_cursor(name, item.id)
            self.counts["kills"] += 1
        except rscylla.RscyllaError as e:
            if not isinstance(e, rscylla.HeadReached) and not e.resumable and not self.life.told(name, e):
                raise
        finally:
            self.end_reading()

    def deliver(self, name: str, event: Any) -> None:
        """Take an event that the consumer *name* got."""
        self.counts["events"] += 1
        if self.process is not None:
            self.process.delivers(name)
        try:
            self._note(name, event)
            self._wreck(event)
        except AssertionError as e:
            self.violations.append(e)
            raise
        if self.is_reading and self.dice.random() < 0.04:
            steps = [self.write, self.alter, self.chaos.strike, self.change_streams, self.pause, self.life.strike]
            self.dice.choices(steps, [2, 1, 1, 1, 3, 1 * self.life.is_eventful])[0]()

    def end_reading(self) -> None:
        self.is_reading = False
        if self.violations:
            raise self.violations[0]

    # ------------------------------------------------------------ the oracle

    def _note(self, name: str, event: Any) -> None:
        """Keep what an event says. Seen again, it must say the same."""
        write = Write(event.timestamp_us, next(iter(event.key.values())), said(event), self.life.log_read_by(name) or 0)
        self.schema.check(event.change, event.change.values.get("n"))
        if event.id in self.delivered:
            self.counts["duplicates"] += 1
            assert self.delivered[event.id] == write, f"{event.id} was {self.delivered[event.id]} and is {write}"
        else:
            self.delivered[event.id] = write
            if self.life.is_before_start(name, write):
                self.counts["seen_before_start"] += 1
            else:
                self.order.append(write)

    def _wreck(self, event: Any) -> None:
        """Change whatever the event hands out, as a consumer may; it says the same to the next one."""
        before = said(event), event.foreign_id, event.metadata
        wreck_event(event)
        assert (said(event), event.foreign_id, event.metadata) == before, f"{event.id} can be changed"
        self.counts["wrecked"] += 1

    def check(self) -> None:
        """Everything was delivered, as often as it was logged, and in order within each partition."""
        written, delivered = Counter(self.written), Counter(self.order)
        lost = written - delivered - self.life.gone
        self.counts["gone"] = (written - delivered).total()  # as the life of the log allows, or what follows fails
        assert not lost, f"lost: {lost}"
        assert not delivered - written, f"never written: {delivered - written}"
        for pk in range(PARTITIONS):
            # A write that was rightly skipped may still come, when its consumer is reset to the oldest row.
            places = [(w.log, w.time_us) for w in self.order if w.pk == pk and w not in self.life.gone]
            assert places == sorted(places), f"partition {pk} is out of order"

    def check_cursor(self, consumer: str, cursor: str, keys: set[int]) -> None:
        """No write to one of *keys* before *cursor* may be missing from what was delivered."""
        if self.process is not None:
            self.process.turns.check()
        passed_us = rscylla.EventID.parse(cursor).exact_us
        log = self.life.log_read_by(consumer)
        passed = Counter(w for w in self.written if w.log == log and w.time_us < passed_us and w.pk in keys)
        missing = self.life.saving(consumer, cursor, passed - Counter(self.order))
        self.claim(not missing, f"the cursor {cursor} passes {missing}")

    def claim(self, is_true: bool, otherwise: str) -> None:
        """Fail unless *is_true*. The library wraps what is raised within it, so it is also kept for after the run."""
        if not is_true:
            self.violations.append(AssertionError(otherwise))
            raise self.violations[-1]


class CheckedStore:
    """A consumer's cursor store; no cursor may pass a write, to a key of its slice, that was not delivered."""

    def __init__(self, simulation: Simulation, store: Any, index: int) -> None:
        self._simulation = simulation
        self._keys = {pk for pk in range(PARTITIONS) if slice_of(pk, simulation.slices) == index}
        self._store = store

    def get_cursor(self, consumer: str) -> str:
        cursor: str = self._store.get_cursor(consumer)
        return cursor

    def set_cursor(self, consumer: str, cursor: str) -> None:
        self._simulation.check_cursor(consumer, cursor, self._keys)
        self._store.set_cursor(consumer, cursor)

    def flush(self) -> None:
        self._store.flush()

    def close(self) -> None:
        """What is in memory outlives the consumers."""


def slice_of(pk: int, count: int) -> int:
    """Return the slice of a key, worked out without the code under test."""
    return (murmur3_token(pk.to_bytes(4, "big", signed=True)) + 2**63) * count // 2**64


def said(event: Any) -> str:
    """Return what an event says, in the words of ``Write.says``."""
    change = event.change
    assert isinstance(change, rscylla.Change)
    operation = change.operation
    if operation == rscylla.Operation.INSERT:
        return f"insert {change.values['n']}"
    if operation == rscylla.Operation.UPDATE:
        return f"static {change.values['s']}" if "s" in change.values else f"update {change.values['n']}"
    if operation == rscylla.Operation.ROW_DELETE:
        _, ck = change.key.values()
        return f"row {ck}"
    if operation == rscylla.Operation.PARTITION_DELETE:
        return "partition"
    assert change.range is not None
    start, end = change.range
    assert start is not None
    assert end is not None
    ((ck, first),) = start.key.items()
    assert (start.inclusive, end.inclusive, end.key) == (True, False, {ck: first + 5})
    return f"range {first}"
