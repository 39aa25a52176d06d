"""What an executor makes of the rows of a base table that are not what their columns say."""

from __future__ import annotations

import pickle
import uuid
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'rscylla[spark]'")

from rscylla.cdc.log.table import BaseColumn, LoggedTable
from rscylla.errors import MalformedData, SourceError
from rscylla.spark.pipeline.snapshots import _TableQuery

COLUMNS = (
    BaseColumn("pk", "partition_key", 0, "int"),
    BaseColumn("at", "clustering", 0, "timestamp"),
    BaseColumn("v", "regular", -1, "int"),
    BaseColumn("m", "regular", -1, "frozen<map<timestamp, int>>"),
    BaseColumn("t", "regular", -1, "timestamp"),
)
QUERY = _TableQuery.of(LoggedTable("ks", "t", COLUMNS, uuid.UUID(int=1)), list(COLUMNS))
INT, LONG, FAR = bytes(4), bytes(8), (2**62).to_bytes(8, "big")
GOOD = {"pk": INT, "at": LONG, "v": INT, "m": INT}


def batch_of(**cells: bytes | None) -> Any:
    row = tuple({**GOOD, **cells}.get(name) for name, _ in QUERY.types)
    return QUERY.batch([tuple(GOOD.get(name) for name, _ in QUERY.types), row], QUERY.builders(), 7)


def test_rows_become_a_batch_of_their_schema() -> None:
    batch = batch_of(t=FAR)
    batch.validate(full=True)
    assert batch.schema.equals(QUERY.schema)
    assert [batch[name].to_pylist() for name in ("v", "t", "cdc$read")] == [[0, 0], [None, None], [7, 7]]


@pytest.mark.parametrize("name", ["pk", "at", "v", "m", "cdc$written_v"])
def test_a_malformed_cell_is_named(name: str) -> None:
    with pytest.raises(MalformedData) as caught:
        batch_of(**{name: b"\x00\x00\xffsecret"})
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.table, error.column, error.resumable) == ("ks.t", name, False)
    assert "secret" not in str(error)
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(("name", "cell"), [("at", FAR), ("m", b"\0\0\0\1\0\0\0\x08" + FAR + b"\xff\xff\xff\xff")])
def test_a_key_beyond_spark_is_named(name: str, cell: bytes) -> None:
    with pytest.raises(SourceError, match=rf"^a row of ks\.t has a timestamp in a key, in column '{name}', that is"):
        batch_of(**{name: cell})
