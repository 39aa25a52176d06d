"""Errors of the driver as this library's own."""

from __future__ import annotations

import pickle

import cassandra
import pytest
from cassandra import cluster, connection, protocol

import rscylla
from rscylla.driver.errors import DRIVER_ERRORS, took_too_long, translate
from rscylla.errors import AuthenticationFailed

NODE = "127.0.0.1:9042"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (cassandra.AuthenticationFailed("no"), AuthenticationFailed),
        (protocol.BadCredentials(0x0100, "Bad credentials", None), AuthenticationFailed),
        (cluster.NoHostAvailable("none", {NODE: cassandra.AuthenticationFailed("no")}), AuthenticationFailed),
        (cluster.NoHostAvailable("none", {NODE: OSError("refused")}), rscylla.ConnectionFailed),
        (cluster.NoHostAvailable("none", []), rscylla.ConnectionFailed),
        (cassandra.UnresolvableContactPoints({}), rscylla.ConnectionFailed),
        (connection.ConnectionShutdown("closed"), rscylla.ConnectionFailed),
        (ConnectionResetError(104, "reset by peer"), rscylla.ConnectionFailed),
        (cassandra.Unauthorized("no SELECT permission"), rscylla.errors.QueryFailed),
        (cassandra.InvalidRequest("unconfigured table t"), rscylla.errors.QueryFailed),
        (cassandra.ConfigurationException("no such strategy"), rscylla.errors.QueryFailed),
        (cassandra.FunctionFailure("failed", "ks", "f", []), rscylla.errors.QueryFailed),
        (protocol.SyntaxException(0x2000, "line 1:7", None), rscylla.errors.QueryFailed),
        (protocol.NotSupportedError("protocol version 2"), rscylla.errors.QueryFailed),
        (cassandra.OperationTimedOut(), rscylla.QueryTimeout),
        (cassandra.ReadTimeout("slow"), rscylla.QueryTimeout),
        (cassandra.WriteFailure("failed"), rscylla.QueryTimeout),
        (cassandra.Unavailable("one of three"), rscylla.QueryTimeout),
        (cassandra.RateLimitReached(op_type=cassandra.OperationType.Read), rscylla.QueryTimeout),
        (protocol.OverloadedErrorMessage(0x1001, "busy", None), rscylla.QueryTimeout),
        (protocol.ServerError(0x0000, "told to fail", None), rscylla.QueryTimeout),
        (connection.ProtocolError("bad frame"), rscylla.errors.SourceError),
        (cassandra.DriverException("other"), rscylla.errors.SourceError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_each_error_has_its_class(error: Exception, expected: type[rscylla.RscyllaError]) -> None:
    assert isinstance(error, DRIVER_ERRORS)
    ours = translate(error, "reading ks.t")
    assert type(ours) is expected
    assert str(ours).startswith("reading ks.t: ")
    assert "\n" not in str(ours)
    assert str(pickle.loads(pickle.dumps(ours))) == str(ours)


def test_an_error_of_this_library_stays_what_it_is() -> None:
    error = rscylla.errors.CDCDisabled("ks.t")
    assert translate(error, "reading ks.t") is error


def test_an_unauthorized_error_names_the_permission_to_grant() -> None:
    error = cassandra.Unauthorized("no MODIFY  on\n<table ks.t>")
    assert str(translate(error, "writing to ks.t", grant="MODIFY on the target table")) == (
        "writing to ks.t: the user has no permission (no MODIFY on <table ks.t>); grant MODIFY on the target table"
    )


@pytest.mark.parametrize(
    "table",
    [
        "the base table",
        "system.cdc_timestamps",
        "system.cdc_streams",
        "system_distributed.cdc_generation_timestamps",
        "system_distributed.cdc_streams_descriptions_v2",
    ],
)
def test_the_error_of_a_refused_reader_names_each_table_that_a_reader_needs(table: str) -> None:
    refused = cassandra.Unauthorized("User eve has no SELECT permission on <table ks.t>")
    what, _, do = str(translate(refused, "reading ks.t")).partition("; ")
    assert what == "reading ks.t: the user has no permission (User eve has no SELECT permission on <table ks.t>)"
    assert do.startswith("grant SELECT on ")
    assert table in do


def test_what_the_nodes_said_is_said_once() -> None:
    error = cluster.NoHostAvailable("none", {"a": OSError("refused"), "b": OSError("refused"), "c": OSError()})
    assert str(translate(error, "connecting", hint="is this a TLS port?")) == (
        "connecting: no node answered (OSError; refused); is this a TLS port?"
    )


def test_a_query_that_was_refused_did_not_take_too_long() -> None:
    assert took_too_long(cassandra.OperationTimedOut())
    assert took_too_long(cassandra.ReadTimeout("slow"))
    assert not took_too_long(cassandra.Unavailable("one of three"))


def test_the_words_of_a_refusal_may_be_left_out() -> None:
    error = translate(cassandra.InvalidRequest("secret value"), "saving", quote=False)
    assert str(error) == "saving: the cluster refused the statement (InvalidRequest); the cause says why"


def test_a_value_that_reads_like_a_refused_password_is_none() -> None:
    error = cassandra.InvalidRequest("Invalid value 'Bad credentials' for column v")
    assert type(translate(error, "saving")) is rscylla.errors.QueryFailed


def test_nodes_without_an_error_are_not_listed_as_failed() -> None:
    error = cluster.NoHostAvailable("Unable to connect to any servers", ["127.0.0.1"])
    ours = translate(error, "connecting")
    assert type(ours) is rscylla.ConnectionFailed
    assert "no node answered (('Unable to connect to any servers', ['127.0.0.1']))" in str(ours)
