"""Which tables can take the changes of another one."""

from __future__ import annotations

import re

import pytest

from rscylla.base.targets import check_columns
from rscylla.cdc.log.table import BaseColumn, Table
from rscylla.errors import CannotReplicate

PK = BaseColumn("pk", "partition_key", 0, "int")
CK = BaseColumn("ck", "clustering", 0, "int")
V = BaseColumn("v", "regular", -1, "int")
S = BaseColumn("Seen", "static", -1, "set<int>")


def target(*columns: BaseColumn) -> Table:
    return Table("ks", "t", columns)


def test_a_definition_is_what_create_and_alter_table_take() -> None:
    assert [c.definition for c in (PK, S)] == ["pk int", '"Seen" set<int> STATIC']


def test_columns_that_only_the_target_has_do_not_matter() -> None:
    check_columns((PK, CK, V), target(PK, CK, V, S), source="source")


@pytest.mark.parametrize(
    ("columns", "same_types", "words"),
    [
        ((PK, CK, V), False, "ks.t lacks the column 'Seen'; run ALTER TABLE ks.t ADD \"Seen\" set<int> STATIC"),
        ((PK, V, S), False, "ks.t has a different primary key from source"),
        ((PK, BaseColumn("ck", "clustering", 0, "int", descending=True), V, S), False, "a different primary key"),
        ((PK, CK, BaseColumn("v", "static", -1, "int"), S), False, "'v' is int static in ks.t, but int in source"),
        (
            (PK, CK, V, BaseColumn("Seen", "static", -1, "frozen<set<int>>")),
            False,
            "'Seen' is frozen<set<int>> static in ks.t, but set<int> static in source",
        ),
        ((PK, CK, BaseColumn("v", "regular", -1, "bigint"), S), True, "'v' is bigint in ks.t, but int in source"),
        ((PK, CK, BaseColumn("v", "regular", -1, "bigint"), S), False, None),
    ],
)
def test_a_target_is_refused(columns: tuple[BaseColumn, ...], same_types: bool, words: str | None) -> None:
    def check() -> None:
        check_columns((PK, CK, V, S), target(*columns), source="source", same_types=same_types)

    if words is None:
        check()
        return
    with pytest.raises(CannotReplicate, match=re.escape(words)):
        check()
