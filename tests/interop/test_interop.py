"""What other languages' drivers and Scylla's own CDC libraries make of the embedded server.

A program in Go or Rust creates tables, writes to them and reads their logs through its CDC library. It has to get the
rows that Scylla's rules give, and those that rscylla delivers.
"""

from __future__ import annotations

import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import attrs
import pytest
import trustme
from interop_rows import FADING, IMAGES, MANY_ROWS, MORE_PARTITIONS, THINGS
from interop_values import plain, printed

import rscylla
from rscylla.embedded import EmbeddedScylla, Tls

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1200)]

SCHEMA = (Path(__file__).parent / "schema.cql").read_text()
TABLES = ("things", "images", "fading", "many")
DELAY_MS = 300
RUN_S = 120
# How far a reader stays behind that reads while others write: what comes later than that is missed.
LIVE_LAG_MS = 1000

Row = dict[str, Any]
Rows = dict[str, list[Row]]


@attrs.frozen
class World:
    """What was written, as two readers saw it: log rows by base table, those of one stream in its order.

    ``marks_null``: whether preimages mark null columns, as they do from Scylla 4.6 on.
    """

    peer: Rows
    ours: Rows
    marks_null: bool = True


# vnodes, tablets, 4.3: how streams are kept. upgraded: 4.3 at first, then 4.4. live: the peer reads while it writes and
# a node joins. resumed: a second reader goes on where the first one stopped, by the library's own table of progress.
# secure: users have passwords; Go over mutual TLS, Rust with lz4.
# Only a Go library of old reads 4.3: the present one asks for a system table that came later.
WORLDS = [
    *(("go", kind) for kind in ("vnodes", "tablets", "live", "resumed", "secure")),
    *(("go-legacy", kind) for kind in ("4.3", "upgraded")),
    *(("rust", kind) for kind in ("vnodes", "tablets", "upgraded", "live", "resumed", "secure")),
]


@pytest.fixture(scope="module", params=WORLDS, ids="-".join)
def world(
    request: pytest.FixtureRequest, peer_program: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A cluster on which a peer wrote before and after a switch of streams, and which it read."""
    language, kind = request.param
    program = peer_program(language)
    secrets = _secrets(tmp_path_factory.mktemp("tls")) if kind == "secure" else None
    with ExitStack() as stack:
        scylla = stack.enter_context(_cluster(kind, None if language == "rust" else secrets))
        since = _now_ms() - 1000
        _create_keyspace(scylla, kind)
        settings = secrets or ({"INTEROP_PROGRESS": "progress"} if kind == "resumed" else {})
        rows = _written_and_read(_Peer(language, program, scylla, settings), kind, since)
        session = _session(scylla, language, secrets)
        stack.callback(session.cluster.shutdown)
        ours = {table: _delivered(session, table) for table in TABLES}
        yield World(rows, ours, marks_null=kind not in ("4.3", "upgraded"))


def _written_and_read(peer: _Peer, kind: str, since: int) -> Rows:
    """Let the peer write before and after a switch of streams; return what it read, before, meanwhile or after."""
    peer.run("schema", given=SCHEMA)
    before: Rows = {}
    with ExitStack() as stack:
        if kind == "live":
            reader = stack.enter_context(peer.reader(since, LIVE_LAG_MS))
        peer.run("write")
        assert peer.scylla.expire_rows() == 1
        if kind == "resumed":
            with peer.reader(since, 1, generations=1) as first:
                before = first.rows()
        _switch_streams(peer.scylla, kind)
        peer.run("more", str(_now_ms() + DELAY_MS))
        if kind != "live":
            reader = stack.enter_context(peer.reader(since, 1))
        # The Go library saves how far it is after each record, the Rust one a window late.
        return _joined(before, reader.rows(), exactly=peer.language == "go")


def _joined(before: Rows, after: Rows, *, exactly: bool) -> Rows:
    """Return the rows of two readers, those that came again once; *exactly* says that none may."""
    joined = dict(before)
    for table, rows in after.items():
        known = {_place(row) for row in before.get(table, [])}
        new = [row for row in rows if _place(row) not in known]
        assert not exactly or len(new) == len(rows), "rows came again after a restart"
        joined[table] = [*before.get(table, []), *new]
    return joined


def _place(row: Row) -> tuple[str, str, int]:
    return row["cdc$stream_id"], row["cdc$time"], row["cdc$batch_seq_no"]


def _secrets(directory: Path) -> dict[str, str]:
    """Return what a peer's program is told of how to log in, and where the files of mutual TLS are."""
    authority = trustme.CA()
    made = {name: directory / f"{name}.pem" for name in ("ca", "cert", "key")}
    leaf = authority.issue_cert("127.0.0.1", "127.0.0.2", "127.0.0.3")
    authority.cert_pem.write_to_path(made["ca"])
    leaf.cert_chain_pems[0].write_to_path(made["cert"])
    leaf.private_key_pem.write_to_path(made["key"])
    files = {f"INTEROP_{name.upper()}": str(path) for name, path in made.items()}
    return {"INTEROP_USER": "ann", "INTEROP_PASSWORD": "correct horse", **files}


def _cluster(kind: str, tls: Mapping[str, str] | None) -> EmbeddedScylla:
    return EmbeddedScylla(
        nodes=3,
        version="4.3" if kind in ("4.3", "upgraded") else None,
        users={"ann": "correct horse"} if kind == "secure" else None,
        compression=kind == "secure",
        tls=Tls(Path(tls["INTEROP_CERT"]), Path(tls["INTEROP_KEY"]), Path(tls["INTEROP_CA"])) if tls else None,
    )


def _create_keyspace(scylla: EmbeddedScylla, kind: str) -> None:
    tablets = "" if kind in ("4.3", "upgraded") else f" AND tablets = {{'enabled': {str(kind == 'tablets').lower()}}}"
    replication = "{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
    scylla.execute(f"CREATE KEYSPACE ks WITH replication = {replication}{tablets}")


def _switch_streams(scylla: EmbeddedScylla, kind: str) -> None:
    """Let other streams be written to after DELAY_MS."""
    delay = timedelta(milliseconds=DELAY_MS)
    if kind == "tablets":
        for table in TABLES:
            scylla.split_tablets("ks", table, delay)
    elif kind == "live":
        scylla.add_node(delay)
    else:
        if kind == "upgraded":
            scylla.upgrade()
        scylla.new_generation(delay)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@attrs.frozen
class _Peer:
    """The peer's program, and what it is told by its environment."""

    language: str
    program: Path
    scylla: EmbeddedScylla
    settings: Mapping[str, str]

    def run(self, *command: str, given: str = "") -> None:
        done = subprocess.run(
            self._line(*command),
            env=self.settings,
            input=given,
            stderr=subprocess.PIPE,
            text=True,
            timeout=RUN_S,
            check=False,
        )
        assert done.returncode == 0, f"{command[0]} ended with {done.returncode}: {done.stderr}"

    @contextmanager
    def reader(self, since_ms: int, lag_ms: int, *, generations: int = 2) -> Iterator[_Reader]:
        """Give a program that reads. It is ended at the latest when this is left."""
        with TemporaryFile("w+") as output:  # a pipe would hold it up when full
            process = subprocess.Popen(
                self._line("read", str(since_ms), str(lag_ms), str(generations)),
                env=self.settings,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.PIPE,
                text=True,
            )
            with process:
                try:
                    assert process.stdin is not None
                    process.stdin.write(" ".join(TABLES) + "\n")
                    process.stdin.flush()
                    yield _Reader(process, output)
                finally:
                    process.kill()

    def _line(self, *command: str) -> list[str]:
        return [str(self.program), self.scylla.contact_points[0], str(self.scylla.port), "ks", *command]


@attrs.frozen
class _Reader:
    """A program that reads logs until its input ends."""

    process: subprocess.Popen[str]
    output: IO[str]

    def rows(self) -> Rows:
        """Let it read what has been written up to now; return all that it got."""
        _, errors = self.process.communicate(timeout=RUN_S)
        assert self.process.returncode == 0, f"the reader ended with {self.process.returncode}: {errors}"
        rows: Rows = {table: [] for table in TABLES}
        self.output.seek(0)
        for line in self.output:
            found = json.loads(line, object_hook=printed)
            rows[found["table"]].append(_with_lists(found["row"]))
        return rows


def _session(scylla: EmbeddedScylla, language: str, secrets: Mapping[str, str] | None) -> rscylla.Session:
    hosts = [f"{host}:{scylla.port}" for host in scylla.contact_points]
    if secrets is None:
        return rscylla.connect(hosts)
    user, password = secrets["INTEROP_USER"], secrets["INTEROP_PASSWORD"]
    if language == "rust":
        return rscylla.connect(hosts, username=user, password=password)
    ca, cert, key = (secrets[f"INTEROP_{name}"] for name in ("CA", "CERT", "KEY"))
    return rscylla.connect(hosts, username=user, password=password, tls_ca=ca, tls_cert=cert, tls_key=key)


def _delivered(session: rscylla.Session, table: str) -> list[Row]:
    """Return the rows that rscylla delivers."""
    until = rscylla.StreamUntil(datetime.now(UTC) + timedelta(milliseconds=1))
    client = rscylla.NewStream(session, "ks", table, granularity="row")("", rscylla.StreamLag(milliseconds=50), until)
    rows: list[Row] = []
    try:
        while True:
            event = client.recv()
            if isinstance(event, rscylla.ChangeEvent):
                rows.append(_with_lists({name: plain(value) for name, value in event.row.items()}))
    except rscylla.HeadReached:
        return rows
    finally:
        client.close()


def _by_stream(rows: list[Row]) -> dict[str, list[Row]]:
    streams: dict[str, list[Row]] = {}
    for row in rows:
        streams.setdefault(row["cdc$stream_id"], []).append(row)
    return streams


def _by_partition(rows: list[Row]) -> dict[int, list[Row]]:
    """Return the rows of each base partition in the order of their times, without what differs from run to run."""
    partitions: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda r: (uuid.UUID(r["cdc$time"]).time, r["cdc$batch_seq_no"])):
        short = {name.removeprefix("cdc$"): value for name, value in row.items()}
        for name in ("stream_id", "time", "batch_seq_no", "end_of_batch"):
            short.pop(name, None)
        if "deleted_elements_steps" in short:
            short["deleted_elements_steps"] = len(short["deleted_elements_steps"][1])
        partitions.setdefault(short.pop("pk"), []).append(short)
    return partitions


def _with_lists(row: Row) -> Row:
    """Return the row with the list as a list. In a log it is a map from timeuuids, which tell the order, to values."""
    match row:
        case {"steps": ("map", cells)}:
            order = sorted((uuid.UUID(key).time, uuid.UUID(key).bytes[8:], value) for key, value in cells)
            return {**row, "steps": [value for *_, value in order]}
    return row


@pytest.mark.parametrize(
    ("table", "expected"), [("things", THINGS), ("images", IMAGES), ("fading", FADING)], ids=TABLES[:3]
)
def test_a_peer_gets_the_rows_that_scylla_would_give(world: World, table: str, expected: dict[int, list[Row]]) -> None:
    # When a row expires is the time at which the program ran.
    rows = [row | {"expires": 1} if row.get("expires") else row for row in world.peer[table]]
    if not world.marks_null:
        expected = {pk: [_unmarked(row) if row["operation"] == 0 else row for row in of] for pk, of in expected.items()}
    assert _by_partition(rows) == expected


def _unmarked(row: Row) -> Row:
    return {name: value for name, value in row.items() if not name.startswith("deleted_")}


@pytest.mark.parametrize("table", TABLES)
def test_a_peer_gets_what_rscylla_delivers(world: World, table: str) -> None:
    assert world.peer[table]
    assert _by_stream(world.peer[table]) == _by_stream(world.ours[table])


def test_a_peer_gets_each_row_of_many_pages_once(world: World) -> None:
    first = [row["ck"] for row in world.peer["many"] if row["ck"] >= 0]
    assert first == list(range(MANY_ROWS))


def test_a_peer_follows_a_switch_of_streams(world: World) -> None:
    later = [row for row in world.peer["many"] if row["ck"] < 0]
    before = [row for row in world.peer["many"] if row["ck"] >= 0]
    assert sorted(row["pk"] for row in later) == list(range(MORE_PARTITIONS))
    assert not set(_by_stream(later)) & set(_by_stream(before))
    # The batches went to one partition; these go all over the ring.
    assert len(_by_stream(before)) == 1
    assert len(_by_stream(later)) > 1


def test_a_record_ends_with_its_last_row(world: World) -> None:
    for rows in _by_stream(world.peer["things"] + world.peer["images"]).values():
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            goes_on = following is not None and following["cdc$time"] == row["cdc$time"]
            assert row.get("cdc$end_of_batch") is (None if goes_on else True)
