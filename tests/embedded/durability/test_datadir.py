"""The files of a data directory: what is cut off, what is an error, and how crashes and full disks lose nothing."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from keptbox import Kept, last_log

from rscylla.embedded import CqlError
from rscylla.embedded.durability import records
from rscylla.embedded.durability.datadir import DataDir
from rscylla.embedded.durability.records import DataDirError
from rscylla.embedded.durability.statecodec import pack, unpack

# ---------------------------------------------------------------- damage


@pytest.mark.slow
def test_a_torn_tail_at_every_byte_of_the_last_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = Kept(tmp_path / "data")
    kept.create()
    kept.run("INSERT INTO t (k, v) VALUES (1, 'a')")
    whole = last_log(tmp_path / "data").stat().st_size
    before = kept.state()
    kept.run("INSERT INTO t (k, v) VALUES (2, 'b')")
    kept.durable.close()
    end = last_log(tmp_path / "data").stat().st_size
    assert end - whole > 100
    for cut in range(whole, end):
        torn = Path(shutil.copytree(tmp_path / "data", tmp_path / f"torn{cut}"))
        os.truncate(last_log(torn), cut)
        caplog.clear()
        other = Kept(torn, kept.clock)
        assert other.state() == before, cut
        assert ("is cut off" in caplog.text) == (cut > whole), cut
        if cut % 16 == 0:
            other.run("INSERT INTO t (k, v) VALUES (3, 'c')")
            other = other.reopened()
            assert len(other.run("SELECT * FROM t")) == 2
        other.durable.close()
        shutil.rmtree(torn)


@pytest.mark.slow
def test_a_changed_byte_is_a_cut_at_the_end_and_an_error_before_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept(tmp_path / "data")
    kept.create()
    ends = []
    for i in range(4):
        kept.run(f"INSERT INTO t (k, v) VALUES ({i}, 'a')")
        ends.append(last_log(tmp_path / "data").stat().st_size)
    kept.durable.close()
    whole = last_log(tmp_path / "data").read_bytes()
    file = last_log(tmp_path / "data")
    heads = {at for end in ends for at in range(end, end + 16)}
    for at in sorted({*range(ends[0], ends[3], 5), *heads} & set(range(ends[0], ends[3]))):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        if at < ends[2]:
            record = ends[0] if at < ends[1] else ends[1]
            with pytest.raises(DataDirError, match=f"log-000001.rsc is damaged at byte {record}, and more was written"):
                Kept(tmp_path / "data", kept.clock)
            assert file.stat().st_size == len(whole)  # nothing is thrown away
        else:
            other = Kept(tmp_path / "data", kept.clock)
            assert len(other.run("SELECT * FROM t")) == 3
            other.durable.close()
    assert "cut off" in caplog.text


def test_rubbish_after_the_end_is_cut(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.create()
    expected = kept.state()
    kept.durable.close()
    file = last_log(tmp_path)
    whole = file.read_bytes()
    for rubbish in (b"\0" * 5000, b"\xd1RSC" * 1000, whole[:200], os.urandom(3000)):
        file.write_bytes(whole + rubbish)
        kept = Kept(tmp_path, kept.clock)
        assert kept.state() == expected
        kept.durable.close()
        assert file.read_bytes() == whole


def with_snapshot(path: Path) -> Kept:
    kept = Kept(path, compact_bytes=3_000)
    kept.create()
    for i in range(60):
        kept.run(f"INSERT INTO t (k, v) VALUES ({i}, 'abc')")
    kept.durable.close()
    assert list(path.glob("snapshot-*.rsc"))
    return kept


def test_damage_of_a_snapshot_is_an_error_even_at_its_end(tmp_path: Path) -> None:
    kept = with_snapshot(tmp_path)
    (file,) = tmp_path.glob("snapshot-*.rsc")
    whole = file.read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 19, len(whole) - 1):
        file.write_bytes(whole[:cut])
        with pytest.raises(DataDirError, match=f"{file.name} is damaged at byte"):
            Kept(tmp_path, kept.clock)
    file.write_bytes(whole)
    assert len(Kept(tmp_path, kept.clock).run("SELECT * FROM t")) == 60


def test_a_log_that_is_missing_is_named(tmp_path: Path) -> None:
    kept = with_snapshot(tmp_path)
    last_log(tmp_path).rename(tmp_path / "log-000099.rsc")
    with pytest.raises(DataDirError, match=r"lacks log-0000.*restore the directory from a copy"):
        Kept(tmp_path, kept.clock)


def test_a_record_cannot_run_code(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(tmp_path / "evil"),))

    with pytest.raises(pickle.UnpicklingError, match="built-in values only"):
        unpack(pickle.dumps(("write", Evil())))
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (pack(("dance", 1)), r"cannot be replayed \(LookupError\)"),
        (pack(("truncate", "ks", "nothing")), r"cannot be replayed \(KeyError\): use the version that wrote it"),
        (pack(("topology", {})), r"cannot be replayed \(KeyError\)"),
        (pack(("write", [], [], [])), r"cannot be replayed \(ValueError\)"),
        (b"not a record", r"cannot be replayed \(UnpicklingError\)"),
    ],
    ids=["kind", "table", "cluster", "places", "form"],
)
def test_a_record_of_another_version_is_an_error(tmp_path: Path, payload: bytes, message: str) -> None:
    kept = Kept(tmp_path)
    kept.durable.close()
    directory = DataDir(tmp_path)
    assert len(list(directory.records())) == 1
    directory.append(payload)
    directory.close()
    for _ in range(2):  # the server releases the directory
        with pytest.raises(DataDirError, match=message):
            Kept(tmp_path, kept.clock)


def test_a_file_of_another_format_is_an_error(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.durable.close()
    writer = records.RecordWriter(last_log(tmp_path), 1)
    writer.append(b"rscylla embedded data, format 99")
    writer.close()
    with pytest.raises(DataDirError, match=r"log-000001.rsc is of a format that this version does not know"):
        Kept(tmp_path, kept.clock)


def test_a_directory_of_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("all there is")
    with pytest.raises(DataDirError, match="was not made by an embedded server"):
        Kept(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]
    with pytest.raises(DataDirError, match="cannot be used: File exists"):
        Kept(tmp_path / "thesis.txt")


# ---------------------------------------------------------------- crashes of a snapshot


def test_a_restart_does_not_write_a_snapshot(tmp_path: Path) -> None:
    kept = Kept(tmp_path, compact_bytes=3_000)
    kept.create()
    rows = 0
    while list(tmp_path.glob("*.tmp")) or not list(tmp_path.glob("snapshot-*.rsc")) or rows < 60:
        rows += 1
        kept.run(f"INSERT INTO t (k, v) VALUES ({rows}, 'x')")
    kept.durable.close()
    (snapshot,) = tmp_path.glob("snapshot-*.rsc")
    assert snapshot.stat().st_size > 3_000
    kept = Kept(tmp_path, kept.clock, compact_bytes=3_000)
    kept.run("INSERT INTO t (k, v) VALUES (0, 'x')")
    assert not list(tmp_path.glob("*.tmp"))
    assert list(tmp_path.glob("snapshot-*.rsc")) == [snapshot]


@pytest.mark.slow
def test_a_crash_at_any_step_of_a_snapshot_loses_nothing(tmp_path: Path) -> None:
    """The directory is copied after each write while a snapshot is made, and at its very end."""
    kept = Kept(tmp_path / "data", compact_bytes=8_000)
    kept.create()
    names = set()
    for i in range(80):
        kept.run(f"INSERT INTO t (k, v) VALUES ({i}, '{'x' * 300}')")
        copied = Path(shutil.copytree(tmp_path / "data", tmp_path / f"copy{i}"))
        names |= {file.name for file in copied.iterdir()}
        other = Kept(copied, kept.clock)
        assert len(other.run("SELECT * FROM t")) == len(other.run("SELECT * FROM t_scylla_cdc_log")) == i + 1
        assert not list(copied.glob("*.tmp"))
        other.durable.close()
    assert {"snapshot-000002.rsc.tmp", "snapshot-000002.rsc", "snapshot-000003.rsc"} <= names


@pytest.mark.parametrize("step", ["old log ended", "new log made", "snapshot kept"])
def test_a_crash_between_the_files_of_a_snapshot(tmp_path: Path, step: str) -> None:
    """States in which a crash leaves the directory between one file and the next, which no copy of the above shows."""
    data = tmp_path / "data"
    kept = Kept(data, compact_bytes=8_000)
    kept.create()
    rows = 0
    while not list(data.glob("*.tmp")):
        rows += 1
        kept.run(f"INSERT INTO t (k, v) VALUES ({rows}, '{'x' * 200}')")
    rows -= 1  # the last one is in the new log
    first = (data / "log-000001.rsc").read_bytes()
    if step == "snapshot kept":
        while not (data / "snapshot-000002.rsc").exists():
            rows += 1
            kept.run(f"INSERT INTO t (k, v) VALUES ({rows}, 'x')")
    kept.durable.close()
    if step == "old log ended":
        (data / "log-000002.rsc").unlink()
    elif step == "new log made":
        (data / "log-000002.rsc").write_bytes(b"")
    else:
        (data / "log-000001.rsc").write_bytes(first)
    kept = Kept(data, kept.clock)
    assert len(kept.run("SELECT * FROM t")) == rows > 5
    assert (data / "log-000001.rsc").exists() == (step != "snapshot kept")
    kept.run("INSERT INTO t (k, v) VALUES (0, 'x')")
    assert len(kept.reopened().run("SELECT * FROM t")) == rows + 1


# ---------------------------------------------------------------- writing fails


@attrs.define
class FullDisk:
    """Takes the place of ``os.writev``: takes half of a record, then no more."""

    is_full: bool = False

    def writev(self, fd: int, parts: tuple[bytes, ...]) -> int:
        data = b"".join(parts)
        return os.write(fd, data[: len(data) // 2] if self.is_full else data)

    def write(self, fd: int, data: bytes) -> int:
        if self.is_full:
            raise OSError(28, "No space left on device")
        return os.write(fd, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def test_a_full_disk_refuses_writes_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FullDisk()
    monkeypatch.setattr(records, "os", disk)
    kept = Kept(tmp_path)
    kept.create()
    kept.run("INSERT INTO t (k, v) VALUES (1, 'a')")
    expected = kept.state()
    disk.is_full = True
    for _ in range(2):
        with pytest.raises(CqlError, match="cannot be written: No space left on device; nothing was changed"):
            kept.run("INSERT INTO t (k, v) VALUES (2, 'b')")
    assert kept.state() == expected
    disk.is_full = False
    kept.run("INSERT INTO t (k, v) VALUES (3, 'c')")
    expected = kept.state()
    assert kept.reopened().state() == expected


def test_a_schema_change_that_cannot_be_kept_ends_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FullDisk()
    monkeypatch.setattr(records, "os", disk)
    kept = Kept(tmp_path)
    kept.create()
    expected = kept.state()
    disk.is_full = True
    with pytest.raises(CqlError, match="No space left"):
        kept.run("CREATE TABLE ks.other (k int PRIMARY KEY)")
    disk.is_full = False
    with pytest.raises(CqlError, match=r"differs from memory since .* could not be written; restart"):
        kept.run("INSERT INTO t (k, v) VALUES (1, 'a')")
    assert kept.reopened().state() == expected


def test_a_snapshot_that_cannot_be_made_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept(tmp_path, compact_bytes=5_000)
    kept.create()

    def full(path: Path, *args: Any, **options: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("rscylla.embedded.durability.datadir.Snapshot", full)
        for i in range(80):
            kept.run(f"INSERT INTO t (k, v) VALUES ({i}, 'abc')")
    assert "no snapshot could be made" in caplog.text
    assert not list(tmp_path.glob("snapshot*"))
    for i in range(80, 160):
        kept.run(f"INSERT INTO t (k, v) VALUES ({i}, 'abc')")
    assert list(tmp_path.glob("snapshot-*.rsc"))
    assert len(kept.reopened().run("SELECT * FROM t")) == 160


# ---------------------------------------------------------------- whose it is


def modes(directory: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}


@pytest.fixture
def open_umask() -> Iterator[None]:
    """With which everything that is made without a thought can be read and written by everyone."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_a_directory_is_for_its_owner_alone(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "new" / "data")
    kept.create()
    kept.durable.close()
    assert stat.S_IMODE((tmp_path / "new" / "data").stat().st_mode) == 0o700
    assert modes(tmp_path / "new" / "data") == {0o600}


@pytest.mark.usefixtures("open_umask")
def test_a_directory_that_others_could_read_is_shut(tmp_path: Path) -> None:
    """An empty directory that a user created, and one of an earlier version."""
    directory = tmp_path / "data"
    directory.mkdir(mode=0o755)
    for _ in range(2):
        DataDir(directory).close()
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        directory.chmod(0o750)


def test_a_directory_that_is_not_a_servers_keeps_its_mode(tmp_path: Path) -> None:
    directory = tmp_path / "home"
    directory.mkdir()
    directory.chmod(0o755)
    (directory / "letter").touch()
    with pytest.raises(DataDirError, match="is not empty"):
        DataDir(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755


def test_a_directory_of_another_user_is_used_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As a volume of a container may be."""

    def refuse(self: Path, mode: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    directory = tmp_path / "data"
    directory.mkdir(mode=0o755)
    directory.chmod(0o755)
    monkeypatch.setattr(Path, "chmod", refuse)
    DataDir(directory).close()
    assert "belongs to another user, and others may read it" in caplog.text
