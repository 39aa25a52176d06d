"""The option in which ``windows`` hands a planned read to the data source."""

from __future__ import annotations

import base64
import os
import pickle
import uuid
from typing import Any

import attrs
import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from rscylla.cdc.log import BaseColumn, LoggedTable, LogWindow, Promise
from rscylla.cdc.log.lifetimes import Lifetimes
from rscylla.cdc.read import Span, SpanShare
from rscylla.errors import ConfigError
from rscylla.spark.source.handed import HandedRead
from rscylla.spark.source.options import Options
from rscylla.spark.source.reading import SpanRead
from rscylla.spark.source.source import ScyllaCdcDataSource

SCHEMA = StructType([StructField("pk", IntegerType(), False, {"cql": {"kind": "partition_key"}})])
COLUMNS = [BaseColumn("pk", "partition_key", 0, "int"), BaseColumn("v", "regular", 0, "map<text, frozen<list<int>>>")]
TABLE = LoggedTable("ks", "t", COLUMNS, log_id=uuid.uuid1(), dropped=(("w", "text"),))
WINDOW = LogWindow(1, 2, 3)
SPANS = (
    Span(TABLE, WINDOW, (b"a", b"b"), b"after", Promise(Lifetimes.of(TABLE), 1, 2, 3)),
    SpanShare(TABLE, WINDOW, 1, 2),
)


def handed() -> HandedRead:
    given = {"contactPoints": "a,b", "keyspace": "ks", "table": "t", "lag": "30s", "varintAs": "decimal(38,0)"}
    options = Options.of({**given, "username": "u", "password": "secret"})
    return HandedRead.of(SpanRead.of(options, SCHEMA), SPANS)


def test_what_is_handed_arrives_and_the_password_is_an_option_that_spark_hides() -> None:
    options = handed().options()
    assert options.keys() == {"handedread", "password"}
    assert b"secret" not in base64.b64decode(options["handedread"])
    found = HandedRead.given({name.upper(): value for name, value in options.items()})
    assert found == handed()
    assert found is not None
    assert found.schema == SCHEMA
    assert HandedRead.given({"keyspace": "ks"}) is None


def test_the_source_plans_nothing_of_what_is_handed() -> None:
    source = ScyllaCdcDataSource(handed().options())  # no node is there to ask
    assert source.schema() == SCHEMA
    reader = source.reader(SCHEMA)
    assert [partition.value for partition in reader.partitions()] == list(SPANS)
    sent = pickle.loads(pickle.dumps(reader))
    assert sent.partitions() == [], "an executor gets one span"
    assert sent._span_read == attrs.evolve(handed().read, schema=SCHEMA)


class Harmful:
    """A pickle that calls a function when it is read."""

    def __init__(self, *call: Any) -> None:
        self._call = call

    def __reduce__(self) -> Any:
        return self._call[0], self._call[1:]


@pytest.mark.parametrize(
    "value",
    [
        Harmful(os.putenv, "RSCYLLA_HARM", "done"),
        Harmful(eval, "1"),
        Harmful(pickle.loads, b""),
        WINDOW,
        {"a": 1},
    ],
)
def test_an_option_that_windows_did_not_write_is_refused(value: object) -> None:
    text = base64.b64encode(pickle.dumps(value)).decode()
    for each in (text, text[:-9], "no"):
        with pytest.raises(ConfigError, match=r"option handedread is for windows\(\) alone; omit it"):
            ScyllaCdcDataSource({"handedread": each}).schema()
