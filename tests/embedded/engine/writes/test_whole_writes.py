"""A write that fails while it is applied: nothing of it stays, in memory or on the disk."""

from __future__ import annotations

import errno
import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from keptbox import Kept, last_log

from rscylla.embedded import CqlError
from rscylla.embedded.durability.datadir import DataDir
from rscylla.embedded.storage.packed import PackedPartition
from rscylla.embedded.storage.partitions import Partition


def test_a_write_that_fails_in_the_middle_leaves_nothing_of_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(18)
    kept = Kept(tmp_path)
    kept.create(
        "k int, c int, s map<int, int> static, m map<int, int>, v text, PRIMARY KEY (k, c)",
        "{'enabled': true, 'preimage': true, 'postimage': true}",
    )
    kept.run("CREATE TABLE ks.big (k int PRIMARY KEY, m map<int, int>)")
    elements = ", ".join(f"{n}: {n}" for n in range(100))  # more than a row has that is kept as bytes
    kept.run(f"INSERT INTO ks.big (k, m) VALUES (1, {{{elements}}})")

    def statement() -> str:
        k, c, n = dice.randrange(2), dice.randrange(6), dice.randrange(100)
        return dice.choice(
            [
                f"INSERT INTO ks.t (k, c, v) VALUES ({k}, {c}, 'v{n}')",
                f"UPDATE ks.t SET m[{n % 5}] = {n}, v = 'u' WHERE k = {k} AND c IN ({c}, {c + 1})",
                f"UPDATE ks.t SET s[{n % 5}] = {n} WHERE k = {k}",
                f"DELETE FROM ks.t WHERE k = {k} AND c = {c}",
                f"DELETE FROM ks.t WHERE k = {k} AND c >= {c} AND c < {c + 3}",
                f"DELETE FROM ks.t WHERE k = {k}",
                f"UPDATE ks.big SET m[{n}] = -1 WHERE k = {k}",
            ]
        )

    failed = 0
    for _ in range(120):
        statements = [statement() for _ in range(dice.randrange(1, 5))]
        before, size = kept.state(), last_log(tmp_path).stat().st_size
        with monkeypatch.context() as patch:
            _fail_at(patch, dice.randrange(6))
            try:
                kept.run(f"BEGIN BATCH {'; '.join(statements)}; APPLY BATCH")
            except ZeroDivisionError:
                failed += 1
                assert kept.state() == before, statements
                assert last_log(tmp_path).stat().st_size == size
    assert 30 < failed < 115
    expected = kept.state()
    kept = kept.reopened()
    assert kept.state() == expected
    kept.durable.close()


def _fail_at(patch: pytest.MonkeyPatch, number: int) -> None:
    """Let the row or record of this number, of those applied from here on, fail once it is half in its place."""
    count = itertools.count()

    def failing(applied: Any) -> Any:
        def apply(*args: Any) -> Any:
            result = applied(*args)
            if next(count) == number:
                raise ZeroDivisionError
            return result

        return apply

    patch.setattr(Partition, "_apply_row", failing(Partition._apply_row))
    patch.setattr(PackedPartition, "append_record", failing(PackedPartition.append_record))


def test_after_a_refused_write_that_stays_on_the_disk_nothing_more_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path)
    kept.create()

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        _fail_at(patch, 0)
        patch.setattr(DataDir, "take_back", broken)
        with pytest.raises(CqlError, match="cannot be written: Input/output error"):
            kept.run("INSERT INTO ks.t (k, v) VALUES (1, 'a')")
    assert kept.run("SELECT * FROM ks.t") == []
    with pytest.raises(CqlError, match="restart the server"):
        kept.run("INSERT INTO ks.t (k, v) VALUES (2, 'b')")
    kept.durable.close()
