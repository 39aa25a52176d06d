"""Secrets of properties in texts: none is shown, and no other word is replaced, by which one could tell them."""

from __future__ import annotations

import pytest

from rscylla.kafka import Properties
from rscylla.kafka.config.redaction import HIDDEN

NEEDED = {
    "topic.prefix": "demo",
    "scylla.cluster.ip.addresses": "127.0.0.1:9042",
    "scylla.table.names": "shop.messages",
    "scylla.user": "carol",
}
TEXTS = (
    "scylla.query.time.window.size has no effect: windows follow the backlog",
    "Did not find table 'shop.messages' in Scylla cluster - missing keyspace 'shop'.",
    "login of carol at 127.0.0.1:9042 is refused",
    '  File "/lib/cassandra/cluster.py", line 1, in connect',
    "publishing shop.messages, shop.swordfish, 30 s behind the clock (scylla.confidence.window.size)",
    "a true story of 42 tables",
    "warning: the stream of shop.messages has a lag of 600 s; topic.prefix is missing",
)


def of(password: str, **more: str) -> Properties:
    return Properties.of(NEEDED | {"scylla.password": password} | more)


@pytest.mark.parametrize(
    "password",
    [
        "scylla",
        "cassandra",
        "messages",
        "carol",
        "shop",
        "Scylla",
        "swordfish",
        "true",
        "42",
        "t",
        "a",
        "9042",
        "600",
        "stream",
        "warning",
        "missing",
    ],
)
def test_a_password_that_is_also_a_word_changes_no_other_text(password: str) -> None:
    properties = of(password)
    for text in TEXTS:
        assert properties.redacted(text) == text
    assert properties.shown() == NEEDED | {"scylla.password": HIDDEN}


@pytest.mark.parametrize("password", ["scylla", "messages", "42", "t", "it's", "swordfish"])
@pytest.mark.parametrize(
    "text",
    ["scylla.password is {!r}; use another", "scylla.password={}, given twice", 'scylla.password: "{}" is refused'],
)
def test_a_text_about_a_password_does_not_have_it(password: str, text: str) -> None:
    found = of(password).redacted(text.format(password))
    assert found.replace('"', "'") == text.format(HIDDEN).replace('"', "'")


@pytest.mark.parametrize("password", ["hunter22", "sw0rdfish", "correct horse", "päss:wörd", "swordfish"])
@pytest.mark.parametrize("text", ["Bearer {}", "https://u:{}@host/x", "it is {}.", "a%3A{}%40b", "'{}'", "x={};"])
def test_a_password_that_no_text_has_by_chance_is_shown_nowhere(password: str, text: str) -> None:
    assert password not in of(password).redacted(text.format(password))


def test_a_value_of_a_reference_is_shown_neither_whole_nor_in_parts() -> None:
    properties = Properties.of(
        {name: value for name, value in NEEDED.items() if name != "scylla.user"}
        | {"tombstones.on.delete": "${env:A}", "scylla.table.names": "${env:B}", "cdc.output.format": "new-${env:C}"},
        env={"A": "no", "B": 'shop."Or ders"', "C": "fangled"},
    )
    said = f"{properties!r} {properties.findings}"
    assert len(properties.errors) == 3
    for part in ("'no'", "Or ders", "new-fangled"):
        assert part not in said


@pytest.mark.parametrize("password", ["scylla", "pw", "", "it@is", "x y"])
def test_a_login_is_hidden_by_its_form(password: str) -> None:
    properties = of("other-password")
    if " " not in password:
        said = properties.redacted(f"no answer from http://carol:{password}@registry:8081/x, http://registry:1")
        assert said == f"no answer from http://carol:{HIDDEN}@registry:8081/x, http://registry:1"
    said = properties.redacted(f'x required username="carol" password="{password}";')
    assert said == f'x required username="carol" password="{HIDDEN}";'
