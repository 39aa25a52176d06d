"""Names of tables as Spark understands them, without Java: the session is played."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from rscylla.errors import ConfigError
from rscylla.spark.sinks.names import TableName


@attrs.frozen
class Played:
    """The part of a session by which names are resolved."""

    catalog_now: str = "spark_catalog"
    database_now: str = "default"
    settings: dict[str, str] = attrs.field(factory=dict)

    @property
    def conf(self) -> dict[str, str]:
        return {"spark.sql.catalog.ice": "class", **self.settings}

    @property
    def catalog(self) -> Played:
        return self

    def currentCatalog(self) -> str:
        return self.catalog_now

    def currentDatabase(self) -> str:
        return self.database_now


def resolved(given: str, **session: Any) -> tuple[str, str]:
    spark: Any = Played(**session)
    found = TableName.of(spark, given)
    assert str(found) == given
    return found.sql, found.sql_in_catalog


@pytest.mark.parametrize(
    ("given", "session", "catalog", "name"),
    [
        ("t", {}, "spark_catalog", "`default`.`t`"),
        ("Orders", {"database_now": "Shop"}, "spark_catalog", "`shop`.`orders`"),
        ("Shop.Orders", {"settings": {"spark.sql.caseSensitive": "true"}}, "spark_catalog", "`Shop`.`Orders`"),
        ("Shop.Orders", {"settings": {"spark.sql.caseSensitive": " True "}}, "spark_catalog", "`Shop`.`Orders`"),
        ("SPARK_CATALOG.db.t", {"catalog_now": "ice"}, "spark_catalog", "`db`.`t`"),
        ("ice.db.Orders", {}, "ice", "`db`.`Orders`"),
        ("Orders", {"catalog_now": "ice", "database_now": "a.`b.c`"}, "ice", "`a`.`b.c`.`Orders`"),
        ("a.b.t", {"catalog_now": "ice"}, "ice", "`a`.`b`.`t`"),
        ("db.t", {"catalog_now": "ice"}, "ice", "`db`.`t`"),
        ("ice.`my db`.`a``b.c`", {}, "ice", "`my db`.`a``b.c`"),
    ],
)
def test_a_name_is_resolved_as_spark_does(given: str, session: dict[str, Any], catalog: str, name: str) -> None:
    assert resolved(given, **session) == (f"`{catalog}`.{name}", name)


@pytest.mark.parametrize("given", ["", ".", "a.", ".a", "a..b", "`a", "a`b`", "``"])
def test_what_is_not_a_name_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="is not the name of a table"):
        resolved(given)


def test_the_catalog_of_the_session_has_no_nested_databases() -> None:
    with pytest.raises(ConfigError, match=r"does not name a table of spark_catalog: write database\.table"):
        resolved("a.b.t")
