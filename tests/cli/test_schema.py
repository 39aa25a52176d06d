"""``rscylla schema``: the statements that create the tables of the stores."""

from __future__ import annotations

import rscylla
from cursorstore import ScyllaCursorStore, group_schema_cql, lease_schema_cql, letter_schema_cql, schema_cql

from .conftest import Run, Shop


def test_the_statements_of_all_tables_are_printed_without_connecting(run: Run) -> None:
    ran = run("schema", "--store", "shop")
    made = schema_cql, lease_schema_cql, group_schema_cql, letter_schema_cql
    assert ran.code == 0
    assert "\n".join(ran.out) == "\n".join(f"{cql('shop')};" for cql in made)
    assert run("schema", "--store", "shop", "--json").objects == [{"cql": cql("shop")} for cql in made]


def test_the_statement_of_one_table_has_its_name(run: Run) -> None:
    ran = run("schema", "leases", "--store", "shop", "--table", "mine", "--json")
    assert ran.objects == [{"cql": lease_schema_cql("shop", "mine")}]
    assert "\n".join(run("schema", "groups", "--store", "shop").out) == f"{group_schema_cql('shop')};"


def test_a_name_of_all_tables_is_refused(run: Run) -> None:
    ran = run("schema", "--store", "shop", "--table", "mine")
    assert (ran.code, "one of cursors, leases, groups, letters" in ran.error) == (2, True)


def test_the_statement_is_what_the_store_needs(run: Run, shop: Shop) -> None:
    ran = run("schema", "cursors", "--store", shop.keyspace, "--table", "places")
    shop.cql("\n".join(ran.out).rstrip(";"))
    store = ScyllaCursorStore(shop.session, shop.keyspace, "places")
    cursor = str(rscylla.EventID(1_795_000_000_000, 1_795_000_000_000_000))
    store.set_cursor("billing", cursor)
    assert store.get_cursor("billing") == cursor


def test_name_that_cannot_be_one(run: Run) -> None:
    ran = run("schema", "--store", "my-shop")
    assert ran.code == 2
    assert "'my-shop' cannot be the name of a keyspace" in ran.error
