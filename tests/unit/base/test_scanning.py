"""Rows of a table as values, by token range, over TCP."""

from __future__ import annotations

import pytest

from rscylla.base.scanning import TableScan
from rscylla.clock import Stop
from rscylla.embedded import EmbeddedScylla, Statements
from rscylla.errors import ConfigError, Stopped, TableNotFound

LEAST, MOST = -(2**63), 2**63 - 1


def test_rows_are_values_in_the_order_of_their_tokens() -> None:
    with EmbeddedScylla() as scylla:
        session = scylla.connect()
        session.execute(
            "CREATE KEYSPACE ks WITH replication = {'class': 'NetworkTopologyStrategy', 'replication_factor': 1}"
        )
        session.execute('CREATE TABLE ks."T" (k int, c int, "V" frozen<map<text, int>>, PRIMARY KEY (k, c))')
        for k in range(20):
            for c in range(3):
                session.execute('INSERT INTO ks."T" (k, c, "V") VALUES (%s, %s, %s)', (k, c, {"c": c} if c else None))
        scan = TableScan(session, "ks", "T", ("V", "c", "k"), consistency="ONE", page_size=7)
        with scylla.faults.fail("read_timeout", Statements(kind="select", table="T"), times=2):
            pages = list(scan.pages(LEAST, MOST, stop=Stop()))
        assert max(map(len, pages)) == 7
        rows = [row for page in pages for row in page]
        tokens = [token for token, _ in rows]
        assert tokens == sorted(tokens)
        assert [row for _, row in rows if row[2] == 5] == [(None, 0, 5), ({"c": 1}, 1, 5), ({"c": 2}, 2, 5)]
        assert len({row[1:] for _, row in rows}) == len(rows) == 60
        middle = tokens[30]
        halves = [list(scan.pages(low, high, stop=Stop())) for low, high in ((LEAST, middle), (middle, MOST))]
        assert [row for half in halves for page in half for row in page] == rows
        stopped = Stop()
        stopped.set()
        with pytest.raises(Stopped):
            list(scan.pages(LEAST, MOST, stop=stopped))
        with pytest.raises(ConfigError, match="lacks the columns W"):
            list(TableScan(session, "ks", "T", ("k", "W"), consistency="ONE").pages(LEAST, MOST, stop=Stop()))
        with pytest.raises(TableNotFound, match=r'no table ks\."U"'):
            list(TableScan(session, "ks", "U", ("k",), consistency="ONE").pages(LEAST, MOST, stop=Stop()))
