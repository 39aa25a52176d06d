"""Transforms make of records what Debezium's own classes make of them in Java, with any options."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from connecttransforms import ARTIFACTS, JavaTransforms, ours, sample
from maven import NoJars, fetch_jars, lacking_tools

from rscylla.debezium import Header, Record, Schema

ROUNDS = 150
A_ROUND = 12
DEBEZIUM = "io.debezium.transforms."
ROUTER = "org.apache.kafka.connect.transforms.RegexRouter"
MODES = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "DROP", " rewrite ", "nope")
FIELDS = (
    *("op", "ts_ms", "ts_us", "source.ts_ms", "table_name", "source.ts_us", "db", "snapshot", "version", "sequence"),
    *("source.snapshot:snap", "transaction", "transaction.id", "id", "op:operation", "nothing", "source.nothing"),
    *("name:source_name", "qty", "pk", " op ", "connector", "source.ts_us.more", "op:", ""),
)
COLUMNS = ("pk", "ck", "qty", "name", "id", "a", "__op", "__deleted", "__table_name", "v", "nothing")
LISTED = Schema("array", items=Schema("string"), name="gone")
CASES = (
    *("smt-unwrap-legacy", "smt-unwrap-advanced", "placement-after-headers", "placement-payload-key-only"),
    *("scalars-advanced-full", "collections-advanced-full", "images-legacy-preimages", "tombstones-off"),
)


@pytest.fixture(scope="module")
def java(request: pytest.FixtureRequest) -> Iterator[JavaTransforms]:
    if reason := lacking_tools():
        pytest.skip(f"Debezium cannot be run: {reason}")
    try:
        jars = fetch_jars(Path(request.config.cache.mkdir("kafka")), *ARTIFACTS)
    except NoJars as e:
        pytest.skip(str(e))
    with JavaTransforms(jars) as found:
        yield found


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return sample(*CASES)


def some_options(dice: random.Random) -> dict[str, str]:
    """Return options of ``ExtractNewRecordState``, a few of them with values that it refuses."""
    found = {"type": f"{DEBEZIUM}ExtractNewRecordState"}

    def maybe(chance: float, name: str, *values: str) -> None:
        if dice.random() < chance:
            found[name] = dice.choice(values)

    if dice.random() < 0.6:
        maybe(0.8, "delete.tombstone.handling.mode", *MODES)
    else:
        maybe(0.8, "delete.handling.mode", "drop", "none", "rewrite", "keep", "REWRITE")
        maybe(0.6, "drop.tombstones", "true", "false", "TRUE", "x")
    for kind in ("fields", "headers"):
        maybe(0.5, f"add.{kind}", ",".join(dice.sample(FIELDS, dice.randint(0, 4))))
        maybe(0.3, f"add.{kind}.prefix", "", "_", "meta_", " x ")
    maybe(0.15, "route.by.field", "ck", "v", "qty", "nothing")
    maybe(0.15, "replace.null.with.default", "true", "false")
    maybe(0.25, "drop.fields.header.name", "gone", "gone", "gone", "__op", " ")
    maybe(0.15, "drop.fields.from.key", "true", "false", "x")
    maybe(0.15, "drop.fields.keep.schema.compatible", "true", "false")
    return found


def some_records(dice: random.Random, records: list[Record]) -> list[Record]:
    """Return records, most of them with a header that lists fields; deletes come with their tombstones."""
    found = []
    for at in dice.sample(range(len(records)), A_ROUND):
        pair = [records[at]]
        if pair[0].shared is not None:
            tail = records[at + 1 :][:1] if pair[0].value is not None else []
            pair = [record._replace(shared=[]) for record in pair + tail]
            pair = [record._replace(shared=pair[0].shared) for record in pair]
        gone = Header("gone", LISTED, dice.sample(COLUMNS, dice.randint(0, 4)))
        more = (gone,) if dice.random() < 0.6 else ()
        found += [record._replace(headers=(*record.headers, *more)) for record in pair]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_unwrapping_with_any_options(java: JavaTransforms, records: list[Record], seed: int) -> None:
    dice = random.Random(seed)
    dropped = made = 0
    for _ in range(ROUNDS):
        options, some = some_options(dice), some_records(dice, records)
        theirs, found = java.answers(options, some), ours(options, some)
        if isinstance(found[0], dict):  # what Debezium refuses when the first record comes, we refuse at the start
            assert any(isinstance(one, dict) or one == "error" for one in theirs), options
            continue
        assert found == theirs, options
        dropped += found.count(None)
        made += sum(isinstance(one, tuple) for one in found)
    assert dropped > ROUNDS
    assert made > ROUNDS


@pytest.mark.parametrize(
    "regex",
    [r"demo\.(.*)\.(.*)", r"(?<a>\w+)\.(?<b>.*)", ".*", "(.)(.)(.)(.)(.)(.)(.)(.)(.)(.)(.*)", "(", "(x)?.*", "no"],
)
def test_topics(java: JavaTransforms, records: list[Record], regex: str) -> None:
    for replacement in (
        "$1-$2",
        "${a}_${b}",
        "$0",
        "x",
        "$11",
        "$12",
        r"\$1",
        r"a\\b",
        "$",
        "$x",
        "$1$1",
        "a\\",
        r"\x$1",
    ):
        options = {"type": ROUTER, "regex": regex, "replacement": replacement}
        theirs, found = java.answers(options, records[:5]), ours(options, records[:5])
        if isinstance(found[0], dict):  # what Java refuses when a topic matches, we refuse at the start
            assert regex == "no" or all(one == "error" or isinstance(one, dict) for one in theirs), options
        else:
            assert found == theirs, options


@pytest.mark.parametrize(
    "options", [{"header.changed.name": "c"}, {"header.changed.name": "c", "header.unchanged.name": "u"}, {}]
)
def test_what_changed(java: JavaTransforms, records: list[Record], options: dict[str, str]) -> None:
    theirs = java.answers(options | {"type": f"{DEBEZIUM}ExtractChangedRecordState"}, records)
    found = ours(options | {"type": f"{DEBEZIUM}ExtractChangedRecordState"}, records)
    # It refuses images where only one has the key. There, we compare what both have.
    refused = [at for at, one in enumerate(theirs) if one == "error"]
    assert {records[at].headers[0].key for at in refused} == {"ck.ck"}
    for at, one in enumerate(theirs):
        assert at in refused or found[at] == one
    assert any(key == "c" for one in found for key, _ in one[3]) is bool(options)
