"""The tables of event sourcing as CQL text."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rscylla.errors import ConfigError
from rscylla.eventsourcing import event_schema_cql, key_schema_cql, snapshot_schema_cql


def test_the_log_of_events_is_on_and_kept_for_longer_than_a_day() -> None:
    assert "cdc = {'enabled': true, 'ttl': 604800}" in event_schema_cql("shop")
    assert "'ttl': 60}" in event_schema_cql("shop", "events", log_ttl=timedelta(minutes=1))
    for text in (snapshot_schema_cql("shop"), key_schema_cql("shop")):
        assert "cdc" not in text


@pytest.mark.parametrize("ttl", [timedelta(), timedelta(days=30_000)])
def test_a_log_that_keeps_nothing_or_too_much_is_refused(ttl: timedelta) -> None:
    with pytest.raises(ConfigError, match="log_ttl"):
        event_schema_cql("shop", log_ttl=ttl)
