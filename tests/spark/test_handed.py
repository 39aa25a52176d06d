"""The option in which ``windows`` hands a planned read to the data source."""

from __future__ import annotations

import base64
import json
import os
import pickle
import uuid
from typing import Any

import attrs
import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from rscylla.cdc.log import BaseColumn, LoggedTable, LogWindow, Promise
from rscylla.cdc.log.lifetimes import Lifetimes
from rscylla.cdc.read import Span
from rscylla.errors import ConfigError
from rscylla.spark.source.handed import HandedRead
from rscylla.spark.source.options import Options
from rscylla.spark.source.reading import SpanRead
from rscylla.spark.source.source import ScyllaCdcDataSource

SCHEMA = StructType([StructField("pk", IntegerType(), False, {"cql": {"kind": "partition_key"}})])
COLUMNS = [BaseColumn("pk", "partition_key", 0, "int"), BaseColumn("v", "regular", 0, "map<text, frozen<list<int>>>")]
TABLE = LoggedTable("ks", "t", COLUMNS, log_id=uuid.uuid1(), dropped=(("w", "text"),))
WINDOW = LogWindow(1, 2, 3)
PROMISE = Promise(Lifetimes.of(TABLE), 1, 2, 3)
SPANS = (
    Span(TABLE, WINDOW, (b"a", b"b"), b"after", PROMISE),
    Span(TABLE, LogWindow(1, 3, 4), (), b"after", PROMISE, 1, 2),
)


def handed() -> HandedRead:
    given = {"contactPoints": "a,b", "keyspace": "ks", "table": "t", "lag": "30s", "varintAs": "decimal(38,0)"}
    options = Options.of({**given, "username": "u", "password": "secret"})
    return HandedRead(SpanRead.of(options, SCHEMA), SPANS)


def test_what_is_handed_arrives_and_the_password_is_an_option_that_spark_hides() -> None:
    options = handed().options()
    assert options.keys() == {"handedread", "password"}
    assert "secret" not in options["handedread"]
    found = HandedRead.given({name.upper(): value for name, value in options.items()})
    assert found == handed()
    assert found is not None
    assert found.read.schema == SCHEMA
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
    """A pickle that calls a function when it is read, or sets attributes of a class by the instruction BUILD."""

    def __init__(self, *call: Any, state: Any = None) -> None:
        self._call = call
        self._state = state

    def __reduce__(self) -> Any:
        return self._call[0], self._call[1:], self._state


FORM = handed().options()["handedread"].split()[0]


def json_of(version: str, *told: Any) -> str:
    return f"{version} {json.dumps(told)}"


NAMES = [
    ["LoggedTable", "a"],
    ["LogWindow", 1, 2, 3],
    ["eval", "1"],
    ["builtins.eval", "1"],
    ["SpanRead"],
    ["type", "x"],
]


@pytest.mark.parametrize(
    "text",
    [
        *(
            base64.b64encode(pickle.dumps(value)).decode()
            for value in (
                Harmful(os.putenv, "RSCYLLA_HARM", "done"),
                Harmful(getattr, SpanRead, "of", state=(None, {"batches": 1})),
                WINDOW,
            )
        ),
        *(json_of(FORM, *([{name: arguments}] * 5)) for name, *arguments in NAMES),
        json_of(FORM, {"LogWindow": [1, 2, 3], "Type": ["int"]}, None, "", None, []),
        json_of(FORM),
        json_of("00000000"),
        handed().options()["handedread"].replace(FORM, "00000000", 1),
        handed().options()["handedread"][:-1],
        handed().options()["handedread"].replace("LoggedTable", "ReadSession"),
        f"{FORM} " + "[" * 100_000,
        "no",
        "",
    ],
)
def test_an_option_that_windows_of_this_version_did_not_write_is_refused(text: str) -> None:
    message = r"^option handedread is for windows\(\) alone, and of one version of rscylla; omit it, or install"
    with pytest.raises(ConfigError, match=message) as caught:
        ScyllaCdcDataSource({"handedread": text}).schema()
    assert caught.value.__cause__ is not None
    assert "RSCYLLA_HARM" not in os.environ


def test_a_wide_table_is_handed_over_once_however_many_spans_there_are() -> None:
    options = [attrs.evolve(handed(), spans=SPANS[:1] * count).options()["handedread"] for count in (1, 101)]
    assert len(options[1]) - len(options[0]) < 100 * 60
