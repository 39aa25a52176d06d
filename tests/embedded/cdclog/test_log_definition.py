"""The log's table, the cdc option, and plain rows."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import attrs
import pytest
from cdc_mutations import UDT, T, cks, log_of, log_rows, table, wide
from hypothesis import example, given
from hypothesis import strategies as st

from rscylla.embedded.cdclog import log as cdclog
from rscylla.embedded.cdclog.log import (
    altered_cdc_options,
    cdc_options,
    extension_bytes,
    log_columns,
    log_options,
    option_map,
)
from rscylla.embedded.errors import ConfigError, CqlError, InvalidRequest, ServerError
from rscylla.embedded.schema.tables import CdcOptions, Column
from rscylla.embedded.storage.mutation import PartitionMutation, PlainRow, RowMutation
from rscylla.embedded.storage.rowpacking import shape_of
from rscylla.embedded.types import DURATION, INT, TEXT, ListType, parse_type

WIDE = wide()


def test_columns_of_the_log() -> None:
    """Key columns first, then all others by name; collections as frozen values with their sets of removed keys."""
    found = [(c.name, c.type.name, c.kind) for c in log_columns(WIDE)]
    assert found[:3] == [
        ("cdc$stream_id", "blob", "partition_key"),
        ("cdc$time", "timeuuid", "clustering"),
        ("cdc$batch_seq_no", "int", "clustering"),
    ]
    assert {kind for _, _, kind in found[3:]} == {"regular"}
    assert [name for name, _, _ in found[3:]] == sorted(name for name, _, _ in found[3:])
    assert {name: text for name, text, _ in found[3:]} == {
        "cdc$operation": "tinyint",
        "cdc$ttl": "bigint",
        "cdc$end_of_batch": "boolean",
        "pk": "int",
        "ck": "int",
        **dict.fromkeys(("a", "b", "s", "v"), "int"),
        **{f"cdc$deleted_{n}": "boolean" for n in ("a", "b", "l", "m", "n", "s", "sm", "st", "u", "v")},
        "l": "frozen<map<timeuuid, int>>",
        "m": "frozen<map<int, int>>",
        "n": "frozen<map<int, int>>",
        "sm": "frozen<map<int, int>>",
        "st": "frozen<set<int>>",
        "u": "frozen<pair>",
        "cdc$deleted_elements_l": "frozen<set<timeuuid>>",
        "cdc$deleted_elements_m": "frozen<set<int>>",
        "cdc$deleted_elements_n": "frozen<set<int>>",
        "cdc$deleted_elements_sm": "frozen<set<int>>",
        "cdc$deleted_elements_st": "frozen<set<int>>",
        "cdc$deleted_elements_u": "frozen<set<smallint>>",
    }


def test_atomic_columns_keep_their_type() -> None:
    kinds = [
        ListType(INT, frozen=True),
        UDT.freeze(),
        DURATION,
        parse_type("tuple<int, text>", lambda name: UDT),
        parse_type("vector<float, 3>", lambda name: UDT),
    ]
    columns = [Column(f"c{n}", kind, "regular") for n, kind in enumerate(kinds)]
    made = log_columns(table(Column("pk", TEXT, "partition_key", 0), *columns))
    assert [c.type for c in made if c.name.startswith("c") and "$" not in c.name] == kinds
    assert not [c.name for c in made if c.name.startswith("cdc$deleted_elements")]


def test_a_base_column_named_as_the_log_names_its_own_is_refused() -> None:
    base = table(Column("pk", INT, "partition_key", 0), Column("cdc$time", INT, "regular"))
    with pytest.raises(InvalidRequest, match=r"cdc\$time"):
        log_columns(base)


@pytest.mark.parametrize(
    ("ttl", "minutes", "frequency"),
    [(86400, "60", "1800"), (1, "1", "1"), (100, "1", "2"), (3600, "3", "75"), (172800, "120", "3600")],
)
def test_compaction_of_the_log_follows_the_ttl(ttl: int, minutes: str, frequency: str) -> None:
    options = log_options(wide(ttl=ttl))
    assert options["compaction"] == {
        "class": "TimeWindowCompactionStrategy",
        "compaction_window_size": minutes,
        "compaction_window_unit": "MINUTES",
        "expired_sstable_check_frequency_seconds": frequency,
    }
    assert options["gc_grace_seconds"] == 0


def test_a_log_that_keeps_its_rows_has_plain_compaction_and_grace() -> None:
    options = log_options(wide(ttl=0))
    assert options["compaction"] == {"class": "TimeWindowCompactionStrategy"}
    assert options["gc_grace_seconds"] == 864000
    assert options["comment"] == "CDC log for ks.t"


def test_defaults_of_the_option() -> None:
    assert cdc_options({}) == CdcOptions()
    assert cdc_options({"enabled": "true"}) == CdcOptions(enabled=True, ttl=86400, delta="full")


@pytest.mark.parametrize(
    ("given_map", "expected"),
    [
        ({"ENABLED": "TRUE"}, CdcOptions(enabled=True)),
        ({"enabled": "1", "preimage": "0", "postimage": "1"}, CdcOptions(enabled=True, postimage=True)),
        ({"preimage": "Full"}, CdcOptions(preimage="full")),
        ({"preimage": "true"}, CdcOptions(preimage="true")),
        ({"delta": "keys"}, CdcOptions(delta="keys")),
        ({"ttl": "0"}, CdcOptions(ttl=0)),
        ({"ttl": "+60x"}, CdcOptions(ttl=60)),
        ({"ttl": "2147483647"}, CdcOptions(ttl=2147483647)),
        ({"enable_requested": "true"}, CdcOptions()),
    ],
)
def test_accepted_options(given_map: dict[str, str], expected: CdcOptions) -> None:
    assert cdc_options(given_map) == expected


@pytest.mark.parametrize(
    ("given_map", "message"),
    [
        ({"enabled": "yes"}, 'Invalid value for CDC option "enabled": yes'),
        ({"enabled": "full"}, 'Invalid value for CDC option "enabled": full'),
        ({"preimage": "some"}, 'Invalid value for CDC option "preimage": some'),
        ({"postimage": "full"}, 'Invalid value for CDC option "postimage": full'),
        ({"delta": "none"}, 'Invalid value for CDC option "delta": none'),
        ({"ttl": "soon"}, 'Invalid value for CDC option "ttl": soon'),
        ({"ttl": ""}, 'Invalid value for CDC option "ttl": '),
        ({"ttl": "2147483648"}, "Invalid CDC option: ttl too large"),
        ({"ttl": "9" * 5000}, "Invalid CDC option: ttl too large"),
        ({"ttl": "-1"}, "Invalid CDC option: ttl must be >= 0"),
        ({"enable_requested": "maybe"}, 'Invalid value for CDC option "enable_requested": maybe'),
        ({"speed": "high"}, "Invalid CDC option: speed"),
    ],
)
def test_refused_options(given_map: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        cdc_options(given_map)
    assert (caught.value.code, caught.value.message) == (0x2300, message)


def test_an_option_that_is_not_a_map_is_a_server_error() -> None:
    with pytest.raises(ServerError):
        cdc_options("x")


def test_alter_must_name_enabled() -> None:
    with pytest.raises(CqlError) as caught:
        altered_cdc_options({"ttl": "5"})
    assert caught.value.code == 0x2200
    assert caught.value.message == 'Altering CDC options requires specifying "enabled" flag'
    assert altered_cdc_options({"Enabled": "false"}) == CdcOptions()


def test_the_stored_form_has_all_five_keys_in_order() -> None:
    """Read back the way the driver-side reader does: counts and lengths are little-endian."""
    raw = extension_bytes(option_map(CdcOptions(enabled=True, preimage="full", delta="keys", ttl=7)))
    (count,) = struct.unpack_from("<I", raw)
    texts, offset = [], 4
    for _ in range(2 * count):
        (size,) = struct.unpack_from("<I", raw, offset)
        texts.append(raw[offset + 4 : offset + 4 + size].decode())
        offset += 4 + size
    assert offset == len(raw)
    assert texts == ["delta", "keys", "enabled", "true", "postimage", "false", "preimage", "full", "ttl", "7"]


def test_the_time_of_a_record_is_exact_and_random_below() -> None:
    first, second = (uuid.UUID(bytes=cdclog.record_time(T + 3, bits)) for bits in (0, (1 << 64) - 1))
    assert [(u.time - 0x01B21DD213814000) / 10 for u in (first, second)] == [T + 3, T + 3]
    assert (first.bytes[8:].hex(), second.bytes[8:].hex()) == ("8000000000000000", "bfffffffffffffff")


def test_a_table_without_cdc_has_no_log_rows() -> None:
    base = table(*WIDE.columns)
    off = type(base)(base.keyspace, base.name, base.id, base.version, base.columns)
    with pytest.raises(ValueError, match="no CDC"):
        log_rows(PartitionMutation(off, cks(1)), log_of(WIDE), lambda _: b"", lambda: 0, None)


PLAIN_OF_WIDE = st.tuples(
    st.booleans(),
    st.sampled_from([("v",), ("a", "v"), ("v", "b", "a"), ()]),
    st.lists(st.none() | st.integers(0, 9).map(INT.encode), min_size=3, max_size=3),
    st.sampled_from([7, 7, 8]),
    st.sampled_from([0, 0, 60]),
)


@given(
    rows=st.dictionaries(st.integers(0, 5), PLAIN_OF_WIDE, min_size=1, max_size=4),
    delta=st.sampled_from(["full", "keys"]),
    images=st.booleans(),
)
@example(  # inserts come first where there are several TTLs
    rows={0: (False, ("v",), [b"\0\0\0\1"] * 3, 7, 60), 1: (True, ("v",), [b"\0\0\0\1"] * 3, 7, 0)},
    delta="full",
    images=False,
)
def test_plain_rows_are_logged_as_their_cells_are(
    rows: dict[int, tuple[bool, tuple[str, ...], list[bytes | None], int, int]], delta: str, images: bool
) -> None:
    options = CdcOptions(enabled=True, delta=delta, preimage="full" if images else "false", postimage=images)
    base = attrs.evolve(WIDE, cdc=options)

    def write(*, plain: bool) -> PartitionMutation:
        out = PartitionMutation(base, (INT.encode(1),))
        for ck, (has_marker, names, values, time, ttl) in rows.items():
            written = [b"\0\0\0\1" if ttl and value is None else value for value in values[: len(names)]]
            row = PlainRow(shape_of(has_marker or not names, *names), time, ttl, 60 + ttl if ttl else None, written)
            out.rows[INT.encode(ck),] = row if plain else RowMutation(row.marker, row.cells)
        return out

    class Before:
        def row(self, key: Any) -> dict[str, bytes]:
            return {"v": b"\0\0\0\5"}

        def static_row(self) -> None:
            return None

    log = log_of(base)
    found = [
        [
            (record.stream_id, record.time, record.timestamp, record.wires)
            for record in cdclog.LogWriter(base, log).records(
                write(plain=plain), lambda _: b"s" * 16, lambda _: 5, Before() if images else None
            )
        ]
        for plain in (True, False)
    ]
    assert found[0] == found[1]
    assert found[0]
