"""Frames, request bodies and answers as bytes, against the native protocol's own layout and the driver's codec."""

from __future__ import annotations

import contextlib
import io
import struct

import pytest
from cassandra import ConsistencyLevel
from cassandra.protocol import BatchMessage, ExecuteMessage, QueryMessage, ResultMessage, _ProtocolHandler
from cassandra.protocol_features import ProtocolFeatures
from cassandra.query import BatchType
from hypothesis import given
from hypothesis import strategies as st

from rscylla.embedded.errors import AlreadyExists, CqlError, InvalidRequest, ProtocolError, Unprepared
from rscylla.embedded.result import (
    UNSET,
    ColumnSpec,
    Prepared,
    Result,
    RowsResult,
    SchemaChange,
    SetKeyspaceResult,
    VoidResult,
)
from rscylla.embedded.types import INT, TEXT
from rscylla.embedded.wire import answer
from rscylla.embedded.wire.frame import HEADER, BodyReader, read_batch, read_execute, read_query

COLUMNS = (ColumnSpec("ks", "t", "pk", INT), ColumnSpec("ks", "t", "v", TEXT))
ROW = b"\0\0\0\4\0\0\0\7" + b"\0\0\0\2ab"
FEATURES = ProtocolFeatures(use_metadata_id=True)


def body_of(
    message: QueryMessage | ExecuteMessage | BatchMessage, features: ProtocolFeatures | None = None
) -> BodyReader:
    buffer = io.BytesIO()
    message.send_body(buffer, 4, *([features] if not isinstance(message, BatchMessage) else []))
    return BodyReader(buffer.getvalue())


def decoded(pieces: bytes | tuple[bytes, bytes], known: object = None) -> object:
    """Return what the driver makes of a frame."""
    data = pieces if isinstance(pieces, bytes) else b"".join(pieces)
    version, flags, stream, opcode, size = HEADER.unpack_from(data)
    assert version == 0x84
    assert size == len(data) - HEADER.size
    return _ProtocolHandler.decode_message(4, FEATURES, {}, stream, flags, opcode, data[HEADER.size :], None, known)


def encoded(result: Result, cache: answer.MetadataCache | None = None, **metadata: object) -> tuple[bytes, bytes]:
    return answer.result_pieces(result, 4, 5, cache or answer.MetadataCache(), **metadata)  # type: ignore[arg-type]


# ---------------------------------------------------------------- requests


def test_a_query_of_the_driver_is_read_with_all_its_parts() -> None:
    message = QueryMessage(
        "SELECT 'ä'",
        ConsistencyLevel.QUORUM,
        serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
        fetch_size=77,
        paging_state=b"state",
        timestamp=1_700_000_000_000_000,
        query_params=[b"x", None, b""],
    )
    request = read_query(body_of(message), "ks", 3)
    assert (request.text, request.values) == ("SELECT 'ä'", [b"x", None, b""])
    params = request.params
    assert (params.consistency, params.serial_consistency) == (ConsistencyLevel.QUORUM, ConsistencyLevel.LOCAL_SERIAL)
    assert (params.page_size, params.paging_state, params.default_timestamp) == (77, b"state", 1_700_000_000_000_000)
    assert (params.keyspace, params.node) == ("ks", 3)


def test_a_query_without_options_leaves_them_unset() -> None:
    params = read_query(body_of(QueryMessage("SELECT 1", ConsistencyLevel.ONE)), None, 0).params
    assert (params.page_size, params.paging_state, params.default_timestamp) == (None, None, None)
    assert params.serial_consistency is None


def test_execute_carries_the_metadata_id_only_when_negotiated() -> None:
    message = ExecuteMessage(b"id", [], ConsistencyLevel.ONE, result_metadata_id=b"meta", skip_meta=True)
    request = read_execute(body_of(message, FEATURES), None, 0, with_metadata_id=True)
    assert (request.statement_id, request.metadata_id, request.skip_metadata) == (b"id", b"meta", True)
    request = read_execute(body_of(message, ProtocolFeatures()), None, 0, with_metadata_id=False)
    assert (request.statement_id, request.metadata_id, request.skip_metadata) == (b"id", None, False)


def test_a_batch_of_the_driver_is_read_in_order() -> None:
    queries = [(False, "INSERT", [b"1"]), (True, b"id", [None])]
    message = BatchMessage(BatchType.UNLOGGED, queries, ConsistencyLevel.ANY, timestamp=9)
    request = read_batch(body_of(message), "ks", 0)
    assert (request.kind, request.items) == ("unlogged", [("INSERT", [b"1"]), (b"id", [None])])
    assert (request.params.default_timestamp, request.params.consistency) == (9, ConsistencyLevel.ANY)


def test_values_can_be_named() -> None:
    body = b"\0\0\0\1x" + b"\0\1" + b"\x41" + b"\0\1" + b"\0\1a" + b"\0\0\0\1z"
    assert read_query(BodyReader(body), None, 0).values == {"a": b"z"}


def test_a_value_can_be_unset_from_v4_on_and_reads_as_null_before() -> None:
    assert BodyReader(b"\xff\xff\xff\xfe", 4).value() is UNSET
    assert BodyReader(b"\xff\xff\xff\xfe", 3).value() is None
    with pytest.raises(ProtocolError, match="invalid value length: -3"):
        BodyReader(b"\xff\xff\xff\xfd", 4).value()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"\0\0\0\1x\0\x0b\0", "consistency level"),
        (b"\0\0\0\1x\0\1\x10\0\1", "serial consistency"),
        (b"\0\0\0\1x\0\1\x40", "named values"),
        (b"\0\0\0\1x\0\1\x80", "Unknown query flags"),
        (b"\0\0\0\1\xff\0\1\0", "UTF8"),
        (b"\x7f\xff\xff\xffx", "truncated frame"),
        (b"\xff\xff\xff\xffx", "truncated frame"),
        (b"\0\0\0\1x\0\1\x20\x80\0\0\0\0\0\0\0", "Out of bound timestamp"),
        (b"", "truncated frame"),
    ],
)
def test_a_malformed_query_is_a_protocol_error(body: bytes, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        read_query(BodyReader(body), None, 0)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"\3\0\0\0\1\0", "Invalid batch type"),
        (b"\0\0\1\7", "Invalid query kind"),
        (b"\0\0\0\0\1\x40", "named values"),
    ],
)
def test_a_malformed_batch_is_a_protocol_error(body: bytes, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        read_batch(BodyReader(body), None, 0)


@given(st.binary(max_size=60), st.sampled_from([3, 4]), st.booleans())
def test_no_request_body_raises_anything_but_a_protocol_error(body: bytes, version: int, with_id: bool) -> None:
    for read in (
        lambda: read_query(BodyReader(body, version), None, 0),
        lambda: read_batch(BodyReader(body, version), None, 0),
        lambda: read_execute(BodyReader(body, version), None, 0, with_metadata_id=with_id),
        lambda: BodyReader(body, version).string_map(),
        lambda: BodyReader(body, version).skip_bytes_map(),
    ):
        with contextlib.suppress(ProtocolError):
            read()


# ---------------------------------------------------------------- answers


def test_rows_read_back_with_names_types_and_values() -> None:
    message = decoded(encoded(RowsResult(COLUMNS, [ROW, ROW], b"next")))
    assert isinstance(message, ResultMessage)
    assert message.column_names == ["pk", "v"]
    assert message.parsed_rows == [(7, "ab"), (7, "ab")]
    assert message.paging_state == b"next"


def test_columns_of_two_tables_carry_their_table_each() -> None:
    columns = (ColumnSpec("ks", "t", "a", INT), ColumnSpec("system", "u", "b", TEXT))
    message = decoded(encoded(RowsResult(columns, [ROW])))
    assert isinstance(message, ResultMessage)
    assert [column[:3] for column in message.column_metadata] == [("ks", "t", "a"), ("system", "u", "b")]
    assert message.parsed_rows == [(7, "ab")]


def test_known_metadata_is_left_out_and_changed_metadata_is_sent_with_its_id() -> None:
    cache = answer.MetadataCache()
    known = cache.get(COLUMNS).id
    result = RowsResult(COLUMNS, [ROW], b"next")
    full = decoded(encoded(result, cache, metadata_id=known))
    assert isinstance(full, ResultMessage)
    message = decoded(encoded(result, cache, skip_metadata=True, metadata_id=known), full.column_metadata)
    assert isinstance(message, ResultMessage)
    assert (message.column_metadata, message.paging_state) == (None, b"next")
    assert message.parsed_rows == full.parsed_rows
    message = decoded(encoded(result, cache, skip_metadata=True, metadata_id=b"old"))
    assert isinstance(message, ResultMessage)
    assert (message.result_metadata_id, message.paging_state) == (known, b"next")
    assert message.parsed_rows == [(7, "ab")]


def test_the_metadata_id_depends_on_names_types_and_tables() -> None:
    cache = answer.MetadataCache()
    variants = [
        COLUMNS,
        COLUMNS[:1],
        COLUMNS[::-1],
        (COLUMNS[0], ColumnSpec("ks", "t", "v", INT)),
        (ColumnSpec("ks", "u", "pk", INT), ColumnSpec("ks", "u", "v", TEXT)),
        (),
    ]
    assert len({cache.get(columns).id for columns in variants}) == len(variants)


def test_the_metadata_cache_is_bounded_and_never_mixes_up_two_lists() -> None:
    cache = answer.MetadataCache()
    for number in range(2000):
        columns = (ColumnSpec("ks", "t", f"c{number}", INT),)
        assert f"c{number}".encode() in cache.get(columns).body
    assert len(cache._entries) <= 512


def test_prepared_names_variables_partition_key_and_columns() -> None:
    prepared = Prepared(b"i" * 16, "text", "ks", None, COLUMNS, (1, 0), COLUMNS[1:])
    frame = answer.prepared_frame(prepared, 4, 5, answer.MetadataCache(), with_metadata_id=True)
    message = decoded(frame)
    assert isinstance(message, ResultMessage)
    assert (message.query_id, message.pk_indexes) == (b"i" * 16, [1, 0])
    assert [column.name for column in message.bind_metadata] == ["pk", "v"]
    assert [column[2] for column in message.column_metadata] == ["v"]
    assert message.result_metadata_id == answer.MetadataCache().get(COLUMNS[1:]).id


def test_prepared_in_v3_has_no_partition_key_indexes() -> None:
    prepared = Prepared(b"i" * 16, "text", "ks", None, COLUMNS, (0,), None)
    frame = answer.prepared_frame(prepared, 3, 5, answer.MetadataCache(), with_metadata_id=False)
    message = _ProtocolHandler.decode_message(3, ProtocolFeatures(), {}, 5, 0, 8, frame[HEADER.size :], None, None)
    assert [column.name for column in message.bind_metadata] == ["pk", "v"]
    assert message.column_metadata is None


def test_a_schema_change_names_its_object() -> None:
    message = decoded(encoded(SchemaChange("CREATED", "TABLE", "ks", "t")))
    expected = {"target_type": "TABLE", "change_type": "CREATED", "keyspace": "ks", "table": "t"}
    assert message.schema_change_event == expected  # type: ignore[attr-defined]
    message = decoded(encoded(SchemaChange("DROPPED", "KEYSPACE", "ks")))
    expected = {"target_type": "KEYSPACE", "change_type": "DROPPED", "keyspace": "ks"}
    assert message.schema_change_event == expected  # type: ignore[attr-defined]


def test_void_and_set_keyspace() -> None:
    assert decoded(encoded(VoidResult())).kind == 1  # type: ignore[attr-defined]
    assert decoded(encoded(SetKeyspaceResult("ks"))).new_keyspace == "ks"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("error", "extra"),
    [
        (InvalidRequest("no"), b""),
        (AlreadyExists("there", "ks", "t"), b"\0\2ks\0\1t"),
        (Unprepared(b"\1\2"), b"\0\2\1\2"),
    ],
)
def test_an_error_has_code_text_and_its_own_fields(error: CqlError, extra: bytes) -> None:
    body = answer.error_frame(4, 9, error)[HEADER.size :]
    text = error.message.encode()
    assert body == struct.pack(">iH", error.code, len(text)) + text + extra


def test_an_error_text_longer_than_a_string_can_be_is_cut() -> None:
    body = answer.error_frame(4, 9, InvalidRequest("ä" * 70_000))[HEADER.size :]
    (size,) = struct.unpack_from(">H", body, 4)
    assert len(body) == 6 + size
    assert set(body[6:].decode()) == {"ä"}


def test_events_read_back() -> None:
    event = decoded(answer.topology_event(4, "NEW_NODE", "127.0.0.2", 9042))
    assert event.event_type == "TOPOLOGY_CHANGE"  # type: ignore[attr-defined]
    assert event.event_args == {"change_type": "NEW_NODE", "address": ("127.0.0.2", 9042)}  # type: ignore[attr-defined]
    event = decoded(answer.status_event(4, "DOWN", "127.0.0.2", 9042))
    assert event.event_args == {"change_type": "DOWN", "address": ("127.0.0.2", 9042)}  # type: ignore[attr-defined]
    event = decoded(answer.schema_event(4, SchemaChange("UPDATED", "TYPE", "ks", "u")))
    expected = {"target_type": "TYPE", "change_type": "UPDATED", "keyspace": "ks", "type": "u"}
    assert event.event_args == expected  # type: ignore[attr-defined]
