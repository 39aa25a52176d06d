"""What arguments name: tables, times, lags."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rscylla
from rscylla.cli.shared.names import parse_lag, parse_table, parse_time


@pytest.mark.parametrize(
    ("text", "keyspace", "table"),
    [
        ("shop.orders", "shop", "orders"),
        ("Shop.ORDERS", "shop", "orders"),
        ('"Shop"."Orders"', "Shop", "Orders"),
        ('shop."Orders"', "shop", "Orders"),
        ('"Shop".Orders', "Shop", "orders"),
        ('"a""b"."c.d"', 'a"b', "c.d"),
        ("shop.order", "shop", "order"),
    ],
)
def test_table_names_follow_the_rules_of_cql(text: str, keyspace: str, table: str) -> None:
    assert parse_table(text) == (keyspace, table)


@given(st.text(min_size=1), st.text(min_size=1))
def test_every_quoted_name_can_be_written(keyspace: str, table: str) -> None:
    quoted = ".".join('"' + name.replace('"', '""') + '"' for name in (keyspace, table))
    assert parse_table(quoted) == (keyspace, table)


@pytest.mark.parametrize("text", ["orders", "", ".", "shop.", "a.b.c", '"shop.orders', 'shop."orders', "shop orders"])
def test_text_that_names_no_table_is_refused_with_the_syntax(text: str) -> None:
    with pytest.raises(rscylla.ConfigError, match=r"write KEYSPACE\.TABLE, such as shop\.orders"):
        parse_table(text)


@pytest.mark.parametrize("text", ["my-shop.orders", "shop.1st", "shop.ordérs", "shop._orders"])
def test_names_that_need_quotes_are_shown_with_them(text: str) -> None:
    keyspace, table = text.split(".")
    with pytest.raises(rscylla.ConfigError, match=f'\'"{keyspace}"."{table}"\''):
        parse_table(text)


def test_times_need_a_zone() -> None:
    assert datetime(2026, 11, 21, 9, tzinfo=UTC) == parse_time("2026-11-21T10:00:00+01:00", option="--until")
    with pytest.raises(rscylla.ConfigError, match="--until: '2026-11-21T10:00:00' has no time zone; add Z"):
        parse_time("2026-11-21T10:00:00", option="--until")
    with pytest.raises(rscylla.ConfigError, match="--until: 'noon' is not a time"):
        parse_time("noon", option="--until")


def test_missing_lag_is_explained_in_terms_of_the_command_line() -> None:
    with pytest.raises(rscylla.errors.MissingLag, match="tail needs --lag SECONDS; 30 or more is safe, because"):
        parse_lag(None, command="tail")


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), 1e300])
def test_a_lag_is_a_number_of_seconds(seconds: float) -> None:
    with pytest.raises(rscylla.ConfigError, match="give a number of seconds, 0 or more"):
        parse_lag(seconds, command="tail")


@pytest.mark.parametrize(("seconds", "lag"), [(0.0, timedelta()), (0.25, timedelta(milliseconds=250))])
def test_lags_may_be_short(seconds: float, lag: timedelta) -> None:
    assert lag == parse_lag(seconds, command="tail")
