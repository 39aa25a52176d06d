"""What users type: options, and one clear message for each mistake."""

from __future__ import annotations

import json
import pickle
import re
from datetime import timedelta
from pathlib import Path

import pytest

from rscylla import ConfigError, EventID
from rscylla._timeuuid import parse_time
from rscylla.errors import MissingLag
from rscylla.spark.sinks.scylla import sink_options
from rscylla.spark.source.optionnames import INSTEAD, NAMES, SAME, known_as, of_table, renamed
from rscylla.spark.source.options import Options, duration
from rscylla.types import Digits

AT = "2026-11-21T10:00:00Z"
GIVEN = {"contactPoints": "127.0.0.1", "keyspace": "shop", "table": "orders", "lag": "30s"}


def test_names_are_read_without_case_and_values_are_typed() -> None:
    options = Options.of(
        {
            "CONTACTPOINTS": "10.0.0.1, 10.0.0.2:9142",
            "path": "shop.orders",
            "Lag": "PT1M",
            "maxwindowspertrigger": "7",
            "maxRowsPerTrigger": "5000",
            "windowSpan": "500 ms",
            "failOnDataLoss": "FALSE",
            "mode": "LOG",
            "columns": "pk, cdc_time",
            "consistency": "local_quorum",
        }
    )
    assert options.connection.contact_points == ("10.0.0.1", "10.0.0.2:9142")
    assert (options.keyspace, options.table, options.lag_us) == ("shop", "orders", 60_000_000)
    assert options.rows_per_trigger == 5_000
    assert (options.windows_per_trigger, options.window_us, options.fail_on_data_loss) == (7, 500_000, False)
    assert (options.mode, options.columns, options.connection.consistency) == (
        "log",
        ("pk", "cdc_time"),
        "LOCAL_QUORUM",
    )


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("a, b ,c,", ("a", "b", "c")),
        ("`a,b`,c", ("a,b", "c")),
        (" ` a ` , `b``c`", (" a ", "b`c")),
        ("a`b,c``d", ("a`b", "c``d")),
        ("`a,b", ("`a", "b")),
        ("`\n`,😀", ("\n", "😀")),
    ],
)
def test_names_of_columns_may_be_in_backticks(given: str, names: tuple[str, ...]) -> None:
    assert Options.of(GIVEN | {"columns": given}).columns == names


def test_the_largest_counts_are_accepted() -> None:
    rows = str(2**63 - 1)
    options = Options.of({**GIVEN, "port": " 065535 ", "pageSize": "2147483647", "maxRowsPerTrigger": rows})
    assert (options.connection.port, options.page_size, options.rows_per_trigger) == (65_535, 2**31 - 1, 2**63 - 1)


def test_digits_of_numbers() -> None:
    given = {**GIVEN, "DecimalAs": "Decimal(38, 9)", "varintas": "decimal(20)"}
    assert Options.of(given).digits == {"decimal": Digits(38, 9), "varint": Digits(20, 0)}
    assert Options.of({**GIVEN, "decimalAs": "string"}).digits == {} == Options.of(GIVEN).digits


def test_the_options_of_a_catalog_table_are_distinguished_from_its_properties() -> None:
    properties = {"owner": "me", "provider": "scylla-cdc", "comment": "orders", **GIVEN, "pageSize": "1"}
    assert of_table(GIVEN) is None
    assert of_table({**properties, **{f"option.{n.lower()}": v for n, v in GIVEN.items()}}) == {
        n.lower(): v for n, v in GIVEN.items()
    }


def test_a_missing_lag_is_explained() -> None:
    with pytest.raises(MissingLag, match=r"no option lag; pass .option\('lag', '30s'\) or more, because rows"):
        Options.of({n: v for n, v in GIVEN.items() if n != "lag"})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"decimalAs": "double"},
            r"option decimalAs must be string or a .*decimal\(38,2\), not 'double'",
        ),
        ({"varintAs": "bigint"}, r"option varintAs must be string or a .*decimal\(38,0\), not 'bigint'"),
        ({"varintAs": "decimal(39,0)"}, r"option varintAs: decimal\(39,0\) is no type of Spark: 1 to 38 digits"),
        ({"decimalAs": "decimal(5,6)"}, "decimal places"),
        ({"decimalAs": "decimal(9,2)", "mode": "events"}, "do not apply to mode events"),
        ({"startPosition": "latest"}, "no option 'startposition'; did you mean 'startingPosition'"),
        ({"zzz": "1"}, "no option 'zzz'; known options are columns, "),
        ({"keyspace": ""}, "option keyspace is missing"),
        ({"contactPoints": " "}, "option contactPoints is missing"),
        ({"lag": "soon"}, "option lag: 'soon' is not a duration; write 30s"),
        ({"lag": "-1s"}, "not a duration"),
        ({"mode": "rows"}, "option mode must be one of changes, events, log, not 'rows'"),
        ({"parallelism": "0"}, "option parallelism must be a whole number from 1 to 2147483647, not '0'"),
        ({"port": "65536"}, "option port must be a whole number from 1 to 65535, not '65536'"),
        ({"pageSize": "2147483648"}, "option pageSize must be a whole number from 1 to 2147483647, not '2147483648'"),
        ({"maxWindowsPerTrigger": "9" * 5_000}, "option maxWindowsPerTrigger must be a whole number from 1 to 21474"),
        ({"maxRowsPerTrigger": str(2**63)}, "option maxRowsPerTrigger must be a whole number from 1 to 922337203685"),
        ({"streamsPerPartition": "+1"}, "option streamsPerPartition must be a whole number from 1 to 21"),
        ({"failOnDataLoss": "maybe"}, "must be true or false"),
        ({"startingPosition": "yesterday"}, "option startingPosition: must be earliest, latest, a time"),
        ({"startingPosition": "{}"}, "option startingPosition: the text is not a cursor"),
        ({"endingPosition": "earliest"}, "option endingPosition must be latest or a time"),
        ({"windowSpan": "0"}, "option windowSpan must be longer than zero"),
        ({"username": "u"}, "username and password .or passwordEnv. go together"),
        ({"password": "p"}, "username and password .or passwordEnv. go together"),
        ({"username": "u", "password": "p", "passwordEnv": "P"}, "exclude each other"),
        ({"tlsCheckHostname": "false"}, "option tlsCheckHostname requires the option tlsCa"),
        ({"tlsCert": "c", "tlsKey": "k"}, "option tlsCert requires the option tlsCa"),
        ({"tlsCa": "a", "tlsCert": "c"}, "tlsCert and tlsKey go together"),
        ({"tlsCa": "a", "tlsKey": "c"}, "tlsCert and tlsKey go together"),
        ({"sslCheckHostname": "true"}, "did you mean 'tlsCheckHostname'"),
        ({"path": "shop.orders"}, "'keyspace.table' instead of"),
        (
            {"table": "shop.orders"},
            "table is 'shop.orders', which names a keyspace, and the option keyspace is 'shop'; give the name",
        ),
        ({"hosts": "127.0.0.2"}, "options 'contactpoints' and 'hosts' mean the same; give one of them"),
        ({"startTime": "latest", "startingPosition": "latest"}, "'starttime' and 'startingposition' mean the same"),
        ({"startTime": "latest", "startingOffsets": "latest"}, "'starttime' and 'startingoffsets' mean the same"),
    ],
)
def test_a_wrong_option_is_reported_by_its_name(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Options.of(GIVEN | given)


A_VALUE = {"port": "9142", "startingposition": "2026-11-21T10:00:00Z", "endingposition": "2026-11-21T10:00:00Z"}
A_VALUE |= {"username": "u", "pagesize": "7"}


@pytest.mark.parametrize("name", SAME)
def test_an_option_may_have_the_name_that_other_sources_give_it(name: str) -> None:
    known = SAME[name]
    value = A_VALUE.get(known.lower(), "text")
    given = {n: v for n, v in GIVEN.items() if n != known}
    for beside, missing in (("username", "password"), ("password", "username")):
        if known == beside:
            given[missing] = "text"
    assert Options.of(given | {name.upper(): value}) == Options.of(given | {known: value})


@pytest.mark.parametrize("name", INSTEAD)
def test_a_name_that_means_something_else_elsewhere_is_answered_with_what_to_use(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Options.of(GIVEN | {name: "1"})
    assert str(caught.value) == f"format('scylla-cdc') has no option {name!r}; {INSTEAD[name]}"
    quoted = [word.lower() for word in str(caught.value).replace(name, "", 1).split("'")[1::2]]
    assert [word for word in quoted if word.isalpha() and word not in NAMES and word not in OF_CQL] == []


OF_CQL = {"enabled", "preimage", "postimage"}


def test_a_table_may_be_named_with_its_keyspace() -> None:
    given = {n: v for n, v in GIVEN.items() if n != "keyspace"}
    assert Options.of(given | {"table": "shop.orders"}) == Options.of(GIVEN)
    with pytest.raises(ConfigError, match="option keyspace is missing"):
        Options.of(given | {"table": "orders"})
    for wrong in (".orders", "shop.", "a.shop.orders"):
        with pytest.raises(ConfigError, match=f"option table is '{re.escape(wrong)}'; give the name of a table"):
            Options.of(given | {"table": wrong})


def test_names_are_of_one_option_only() -> None:
    assert not NAMES.keys() & SAME.keys()
    assert not (NAMES.keys() | SAME.keys()) & INSTEAD.keys()
    assert {known.lower() for known in SAME.values()} <= NAMES.keys()


def test_a_secret_under_the_name_of_another_source_does_not_enter_the_catalog() -> None:
    given = of_table({"provider": "scylla-cdc", "option.spark.cassandra.auth.password": "hunter2"})
    assert given is not None
    assert renamed(given) == {"password": "hunter2"}


@pytest.mark.parametrize("name", ["startingTimestamp", "startingtimestamp"])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2026-11-21 10:00:00", "has no T and no zone; for UTC, write 2026-11-21T10:00:00Z"),
        ("2026-11-21", "has no time of day and no zone; for UTC, write 2026-11-21T00:00:00Z"),
        ("2026-11-21T10:00:00.5", "has no zone; for UTC, write 2026-11-21T10:00:00.5Z"),
        ("2026-11-21 10:00:00+02:00", "has no T; write 2026-11-21T10:00:00+02:00"),
        ("2026-11-21T10:00Z", "has no seconds; write 2026-11-21T10:00:00Z"),
    ],
)
def test_what_a_time_lacks_is_said_with_the_name_that_the_option_was_given(name: str, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Options.of(GIVEN | {name: text})
    assert str(caught.value) == f"option startingTimestamp: {text!r} {told}"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"endTime": "2026-02-30"}, "option endTime: must be earliest, latest, a time such as"),
        ({"endTime": "earliest"}, "option endTime must be latest or a time"),
        ({"startTime": AT, "endTime": "2026-11-21T09:00:00Z"}, r"option startTime \(.*\) is after endTime \("),
        ({"fetchsize": "0"}, "option fetchSize must be a whole number from 1 to 2147483647"),
    ],
)
def test_an_option_is_named_as_it_was_given(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Options.of(GIVEN | given)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("30s", 30_000), ("500 ms", 500), ("2 minutes", 120_000), ("1h", 3_600_000), ("PT1M0.5S", 60_500), ("1.5", 1_500)],
)
def test_lengths_of_time(text: str, milliseconds: int) -> None:
    assert duration(text) == timedelta(milliseconds=milliseconds)


def test_no_options_at_all_are_those_of_a_catalog_table_with_columns_of_its_own() -> None:
    with pytest.raises(ConfigError, match=r"got no options: .* omit both, or use CREATE TEMPORARY VIEW v"):
        Options.of({})


def test_positions() -> None:
    cursor = str(EventID(1_000, 2_000_000))
    assert Options.of(GIVEN | {"startingPosition": cursor}).start.cursor == cursor
    assert Options.of(GIVEN | {"startingPosition": "1970-01-01T00:00:02Z"}).start.time_us == 2_000_000
    assert Options.of(GIVEN).start.name == "earliest"


def test_passwords_do_not_show(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = Options.of(GIVEN | {"username": "u", "password": "hunter2"})
    assert "hunter2" not in repr(given)
    assert given.connection.credentials() == ("u", "hunter2")

    monkeypatch.setenv("SCYLLA_PASSWORD", "hunter3")
    named = Options.of(GIVEN | {"username": "u", "passwordEnv": "SCYLLA_PASSWORD"})
    assert named.connection.credentials() == ("u", "hunter3")

    file = tmp_path / "credentials"
    filed = Options.of(GIVEN | {"credentialsFile": str(file)})
    for text in (
        json.dumps({"username": "u", "password": "hunter4"}),
        "[authentication]\nusername = u\npassword = hunter4\n",
        "[PlainTextAuthProvider]\nusername = u\npassword = hunter4\n",
    ):
        for encoding in ("utf-8", "utf-8-sig"):
            file.write_text(text, encoding)
            assert filed.connection.credentials() == ("u", "hunter4")
    for one in (named, filed):
        assert b"hunter" not in pickle.dumps(one)


def test_missing_credentials_are_reported_without_their_values(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="environment variable RSCYLLA_NOT_SET"):
        Options.of(GIVEN | {"username": "u", "passwordEnv": "RSCYLLA_NOT_SET"}).connection.credentials()
    file = tmp_path / "credentials"
    connection = Options.of(GIVEN | {"credentialsFile": str(file)}).connection
    with pytest.raises(ConfigError, match="cannot be read: FileNotFoundError"):
        connection.credentials()
    for text in ("{", '{"username": "u"}', "password = hunter2", "[other]\npassword = hunter2\n", '{"password": 1}'):
        file.write_text(text)
        with pytest.raises(ConfigError, match="has no username and password") as caught:
            connection.credentials()
        assert "hunter2" not in str(caught.value)


def test_the_page_names_all_options() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    table = page[page.index("## Options") : page.index("## Columns")]
    assert [name for name in NAMES.values() if f"`{name}`" not in table] == []


JUST_AFTER = parse_time(AT) + 1


@pytest.mark.parametrize("start", ["2026-11-21T10:00:01Z", str(EventID(1_795_000_000_000, JUST_AFTER))])
def test_a_start_after_the_end_is_refused(start: str) -> None:
    given = {**GIVEN, "endingPosition": AT}
    assert Options.of({**given, "startingPosition": AT}).end.time_us == parse_time(AT)
    with pytest.raises(ConfigError, match=r"startingPosition \(2026-11-21T10:00:0.*\) is after endingPosition"):
        Options.of({**given, "startingPosition": start})


TARGET = {name: value for name, value in GIVEN.items() if name != "lag"}


OF_SINKS = ("contactPoints", "port", "localDc", "consistency", "keyspace", "table", "username", "password")
OF_SINKS += ("passwordEnv", "credentialsFile", "tlsCa", "tlsCert", "tlsKey", "tlsCheckHostname")
OF_BOTH = ("lag", "pageSize", "fetchSize", "parallelism", "streamsPerPartition", "windowSpan", "maxWindowsPerTrigger")
OF_BOTH += ("maxRowsPerTrigger", "failOnDataLoss", "failOnSchemaChange")
WHAT_IS_READ = ("mode", "columns", "keepDollar", "startingPosition", "startingTime", "endingPosition")
WHAT_IS_READ += ("decimalAs", "varintAs")


@pytest.mark.parametrize("name", WHAT_IS_READ)
def test_a_sink_refuses_options_that_choose_what_is_read(name: str) -> None:
    with pytest.raises(ConfigError, match=f"a sink writes all that it gets, so it has no option '{name}'; omit it"):
        sink_options({**TARGET, name: "1"})


@pytest.mark.parametrize("name", OF_BOTH)
def test_a_sink_ignores_options_of_how_a_log_is_read(name: str) -> None:
    assert sink_options({**TARGET, name: "1"}) == sink_options(TARGET)


def test_a_sink_knows_each_option_of_the_source() -> None:
    assert {known_as(name) for name in (*OF_SINKS, *OF_BOTH, *WHAT_IS_READ)} == NAMES.keys()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("zzz", f"known options are {', '.join(OF_SINKS)}"),
        ("keyspase", "did you mean 'keyspace'?"),
        ("batchSize", "omit it, because each row is a statement of its own"),
        ("numPartitions", "omit it, because a sink does not read"),
        ("dbtable", "use 'keyspace' and 'table'"),
        ("checkpointLocation", 'it belongs to the query: writeStream.option("checkpointLocation", …)'),
    ],
)
def test_an_unknown_option_of_a_sink_is_answered_with_options_of_sinks(name: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sink_options({**TARGET, name: "1"})
    assert str(caught.value) == f"a sink has no option {name.lower()!r}; {told}"


@pytest.mark.parametrize("level", ["serial", "LOCAL_SERIAL"])
def test_a_sink_does_not_write_with_a_consistency_of_reads(level: str) -> None:
    with pytest.raises(ConfigError, match="SERIAL is for reading"):
        sink_options({**TARGET, "consistency": level})
