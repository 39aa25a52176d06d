"""A data directory: one server's numbered logs, the snapshot they follow, and the lock that keeps others out.

    lock                   held by the server that uses the directory
    snapshot-000003.rsc    everything up to the start of log 3
    log-000003.rsc         what happened since, record by record
    log-000004.rsc         the last one is appended to

A log that was followed by another ends with an end mark, and so does a snapshot; only the last log may be cut short.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import stat
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

from .records import DataDirError, RecordReader, RecordWriter

__all__ = ["DataDir", "Snapshot"]

log = logging.getLogger("rscylla.embedded")

_LOCK: Final = "lock"
_NAME: Final = re.compile(r"(log|snapshot)-(\d{6,9})\.rsc\Z")
_BEGIN: Final = b"rscylla embedded data, format 1"
_END: Final = b"end"
_FLUSH_EVERY: Final = 8 * 1024 * 1024  # bytes of a snapshot; one flush of all of it would be a long stop


class Snapshot:
    """A snapshot in the making. It counts only once ``DataDir.keep`` has put it at its place."""

    def __init__(self, path: Path, number: int) -> None:
        self.number = number
        self._writer = RecordWriter(path, number)
        self._flushed = 0
        self._writer.append(_BEGIN)

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._writer.size

    @property
    def path(self) -> Path:
        return self._writer.path

    def append(self, payload: bytes) -> int:
        """Add a record; return its bytes."""
        length = self._writer.append(payload)
        if self._writer.size - self._flushed > _FLUSH_EVERY:
            self._writer.flush()
            self._flushed = self._writer.size
        return length

    def finish(self) -> None:
        self._writer.append(_END)
        self._writer.flush()
        self._writer.close()

    def discard(self) -> None:
        """Let go of it. Harmless when the file has gone."""
        self._writer.close()
        self._writer.path.unlink(missing_ok=True)


class DataDir:
    """The files of one directory, locked from the making of the object to ``close``.

    Read ``records`` to their end once, then ``append``. ``snapshot_size`` is that of the snapshot found, in bytes.
    Not thread-safe.

    Args:
        path: The directory; it is made when it is not there.
        sync: Each ``append`` waits for the disk.

    Raises:
        DataDirError: It cannot be made or written, another server holds it, or it is full of other things.
    """

    def __init__(self, path: Path, *, sync: bool = False) -> None:
        self.path = path
        self._sync = sync
        self._writer: RecordWriter | None = None
        self._has_snapshot = False
        self.snapshot_size = 0
        self.place = ""
        """Where the record is that ``records`` has yielded last."""
        self._lock = self._take_lock()
        try:
            self._base, self._last = self._tidy()
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------ opening

    def _take_lock(self) -> int:
        try:
            import fcntl  # POSIX only; a server without a data directory does not need it
        except ImportError as error:
            raise DataDirError("this system has no file locks as data directories need them (flock)") from error
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            names = {entry.name for entry in self.path.iterdir()}
            if names and _LOCK not in names:
                raise DataDirError(
                    f"{self.path} is not empty and was not made by an embedded server; name a directory of its own"
                )
            self._shut_others_out()
            lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DataDirError(f"the data directory {self.path} cannot be used: {error.strerror}") from error
        try:
            # flock, not lockf: it also keeps out a second server of this process.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(lock, 20).decode(errors="replace").strip() or "unknown"
            os.close(lock)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise DataDirError(f"the data directory {self.path} cannot be locked: {error.strerror}") from error
            raise DataDirError(
                f"the data directory {self.path} is in use by another server (process {holder});"
                " stop that one, or name another directory"
            ) from None
        with contextlib.suppress(OSError):  # a full disk; the process id is for error messages only
            os.ftruncate(lock, 0)
            os.write(lock, f"{os.getpid()}\n".encode())
        return lock

    def _shut_others_out(self) -> None:
        """Make the directory readable by its owner only, whoever created it, because tables may hold private data."""
        if stat.S_IMODE(self.path.stat().st_mode) & 0o077:
            try:
                self.path.chmod(0o700)
            except PermissionError:
                log.warning("the data directory %s belongs to another user, and others may read it", self.path)

    def _tidy(self) -> tuple[int, int]:
        """Remove what a crash left behind; return the numbers of the first log that counts and of the last one."""
        found: dict[str, set[int]] = {"log": set(), "snapshot": set()}
        for entry in list(self.path.iterdir()):
            match = _NAME.match(entry.name)
            if match is not None:
                found[match[1]].add(int(match[2]))
            elif entry.name.endswith(".rsc.tmp"):
                entry.unlink()
        # The newest snapshot stands for all that was before it; a crash in keep() may have left some of that here.
        base = max(found["snapshot"], default=1)
        self._has_snapshot = base in found["snapshot"]
        if self._has_snapshot:
            self.snapshot_size = (self.path / _snapshot_name(base)).stat().st_size
        self._remove_before(base)
        logs = {number for number in found["log"] if number >= base}
        last = max(logs, default=base)
        # A snapshot's own log is made before the snapshot has its name, so even the first number cannot be missing.
        missing = set(range(base, last + 1)) - logs
        if missing and (logs or self._has_snapshot):
            raise DataDirError(f"the data directory {self.path} lacks {_log_name(min(missing))}; {_RESTORE}")
        return base, last

    def _remove_before(self, base: int) -> None:
        for entry in list(self.path.iterdir()):
            match = _NAME.match(entry.name)
            if match is not None and int(match[2]) < base:
                entry.unlink(missing_ok=True)

    # ------------------------------------------------------------ reading

    def records(self) -> Iterator[bytes]:
        """Yield all records: those of the snapshot, then those of the logs. At the end the last log is ready to grow.

        A last log that was cut short loses what is not whole, with a warning.
        Raises DataDirError for damage anywhere else.
        """
        if self._has_snapshot:
            yield from self._sealed(self.path / _snapshot_name(self._base), self._base)
        for number in range(self._base, self._last):
            yield from self._sealed(self.path / _log_name(number), number)
        yield from self._open_log()

    def _sealed(self, path: Path, number: int) -> Iterator[bytes]:
        """Yield the records of a file that has to be whole."""
        reader = RecordReader(path, number)
        last = yield from self._inner(reader)
        if reader.damage is not None:
            raise _damaged(path, reader.damage.offset)
        if last != _END:
            raise _damaged(path, reader.size)

    def _open_log(self) -> Iterator[bytes]:
        path = self.path / _log_name(self._last)
        if not path.exists():
            self._writer = self._new_log(self._last)
            return
        reader = RecordReader(path, self._last)
        last = yield from self._inner(reader)
        damage = reader.damage
        if damage is not None:
            if not damage.is_tail:
                raise _damaged(path, damage.offset)
            log.warning(
                "the end of %s was not written to the end and is cut off: %d bytes from byte %d on",
                path,
                damage.size,
                damage.offset,
            )
        # Ended for a snapshot whose new log could not be made, or was lost in a crash.
        if last == _END:
            self._last += 1
            self._writer = self._new_log(self._last)
        # Not even the begin mark was whole: the crash came as the log was made.
        elif not reader.count:
            self._writer = self._new_log(self._last)
        else:
            self._writer = RecordWriter(path, self._last, size=reader.size, count=reader.count, sync=self._sync)

    def _inner(self, reader: RecordReader) -> Generator[bytes, None, bytes | None]:
        """Yield the records between the begin and the end mark; return the last record."""
        payload: bytes | None = None
        for payload in reader:
            if reader.count == 1:
                if payload != _BEGIN:
                    raise DataDirError(f"{reader.path} is of a format that this version does not know")
            elif payload != _END:
                self.place = f"{reader.path}, record {reader.count - 1}"
                yield payload
        return payload

    def _new_log(self, number: int) -> RecordWriter:
        writer = RecordWriter(self.path / _log_name(number), number, sync=self._sync)
        try:
            writer.append(_BEGIN)
            self._flush_directory()
        except BaseException:
            # The log before it may be written to again, and must then be the last one.
            writer.close()
            writer.path.unlink(missing_ok=True)
            raise
        return writer

    # ------------------------------------------------------------ writing

    def append(self, payload: bytes) -> int:
        """Add a record to the last log; return its bytes. An OSError leaves the log as it was."""
        if self._writer is None:
            raise OSError(errno.EBADF, "the data directory is closed")
        return self._writer.append(payload)

    def take_back(self, length: int) -> None:
        """Remove the record that was appended last, which took *length* bytes."""
        if self._writer is not None:
            self._writer.take_back(length)

    def begin_snapshot(self) -> Snapshot:
        """Start a new log, and a snapshot of all that stands in the logs before it."""
        if self._writer is None:
            raise OSError(errno.EBADF, "the data directory is closed")
        number = self._last + 1
        snapshot = Snapshot(self.path / f"{_snapshot_name(number)}.tmp", number)
        try:
            # On the disk before the next log is there, for all logs but the last have to be whole.
            self._writer.append(_END)
            self._writer.flush()
            writer = self._new_log(number)
        except BaseException:
            snapshot.discard()
            raise
        self._writer.close()
        self._writer, self._last = writer, number
        return snapshot

    def keep(self, snapshot: Snapshot) -> None:
        """Let a whole snapshot take the place of the logs before it."""
        snapshot.finish()
        # The name without .tmp says that it is whole. It is on the disk before the old logs go.
        snapshot.path.rename(self.path / _snapshot_name(snapshot.number))
        self._flush_directory()
        self._base = snapshot.number
        self._remove_before(snapshot.number)

    def flush(self) -> None:
        """Return when the disk has all that was appended."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Close the files and let others in; more than once is harmless."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def _flush_directory(self) -> None:
        # fsync of a file keeps its bytes, that of its directory keeps its name.
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


_RESTORE: Final = "restore the directory from a copy, or empty it to start anew"


def _damaged(path: Path, offset: int) -> DataDirError:
    return DataDirError(
        f"{path} is damaged at byte {offset}, and more was written after that: this is no write cut short; {_RESTORE}"
    )


def _log_name(number: int) -> str:
    return f"log-{number:06d}.rsc"


def _snapshot_name(number: int) -> str:
    return f"snapshot-{number:06d}.rsc"
