"""Regular expressions of Java: what they match, as Java 17 says, and what is refused by its name."""

from __future__ import annotations

import re

import pytest

from rscylla.debezium import RegexRouter, java_pattern, transforms_of
from rscylla.debezium.record import Record
from rscylla.errors import ConfigError

TEXTS = ("a", "A", "b", "d", "ab", "aB", "a.b", "-", "]", "&", "aa", "demo.shop.items", "DEMO.shop.items", "a\tb", "12")


@pytest.mark.parametrize(
    ("regex", "matched"),
    [
        (r"(?i)demo\..*", "demo.shop.items DEMO.shop.items"),
        (r"(?i)x|ab", "ab aB"),
        (r"(?i:a)B?", "a A aB"),
        (r"(?i:a(?-i:b))?|A", "A ab"),
        (r"[a&\]]", "a ] &"),
        (r"[a-]+", "a - aa"),
        (r"[^a-z&]", "A - ]"),
        (r"[a^|~]{1,2}", "a aa"),
        (r"a++", "a aa"),
        (r"(?>a|ab)\.?b?", "a ab a.b"),
        (r"a.b", "a.b a\tb"),
        (r"a\z|b$|^d", "a b d"),
        (r"\x61|\u0064|\t", "a d"),
        (r"(?<first>a)\k<first>", "aa"),
        (r"(a)\1?", "a aa"),
        (r"[^\W\d]", "a A b d"),
        (r"\]|\&|\-", "- ] &"),
        (r"(?=a)\w(?!b)\w*|\d{2,}", "a aB aa 12"),
        (r"[\w-.]+", "a A b d ab aB a.b - aa demo.shop.items DEMO.shop.items 12"),
        (r"[\d-\.a]+", "a - aa 12"),
        (r"[^\w-T:]", "] &"),
        (r"[\d-a-c]+", "a b ab - aa 12"),
        (r"[\\d-f]", "d"),
        (r"\Qa.b\E|\Q-", "a.b -"),
        (r"\Q1\E2|(a)\1?\Q.b", "12 a.b"),
        (r"(a)\1\Q2\E|(?:a)\Qb\E?", "a ab"),
        (r"(?s)a.b", "a.b a\tb"),
        (r"x|(?i)a.?|b", "a A b ab aB aa"),
        (r"a.?|(?i)a", "a A ab aB aa"),
        (r"(?is)A.?", "a A ab aB aa"),
    ],
)
def test_what_matches(regex: str, matched: str) -> None:
    pattern = java_pattern(regex, "x")
    found = {text for text in TEXTS if pattern.fullmatch(text)}
    assert found == set(matched.split(" "))


@pytest.mark.parametrize(
    ("regex", "said"),
    [
        (r"\p{IsLatin}", r"\p{IsLatin}"),
        (r"\pL+", r"\pL"),
        (r"[\p{Lower}]", r"[\p{Lower}]"),
        (r"a(?i)b", "(?i)"),
        (r"(a|(?i)b)", "(?i)"),
        (r"a|b(?i)c", "(?i)"),
        (r"a(?s).*", "(?s)"),
        (r"(?x)a b", "(?x)"),
        (r"(?iu)a", "(?iu)"),
        (r"(?U:\w)", "(?U:"),
        (r"(?P<n>a)", "(?P<n>"),
        (r"(?#comment)a", "(?#comment)"),
        (r"\Ga", r"\G"),
        (r"\X", r"\X"),
        (r"\h", r"\h"),
        (r"\v", r"\v"),
        (r"\R", r"\R"),
        (r"\Z", r"\Z"),
        (r"\e", r"\e"),
        (r"\055", r"\0"),
        (r"\x{61}", r"\x"),
        (r"\cA", r"\c"),
        (r"\b{g}", r"\b"),
        (r"a\Q\E", r"\Q"),
        (r"[\Qa\E]", r"[\Qa\E]"),
        (r"[a[b-d]]", "[a[b-d]"),
        (r"[a-d&&[^bc]]", "[a-d&&[^bc]"),
        (r"[a--b]", "[a--b]"),
        (r"[\b]", r"[\b]"),
        (r"[]a]", "[]"),
        (r"[^].]", "[^]"),
        (r"[^]^]", "[^]"),
        (r"[\w--b]", r"[\w--b]"),
        (r"(a)\11", r"\1"),
        (r"\N{DIGIT ONE}", r"\N"),
        (r"\ud83d\ude00", r"\u"),
        ("a{,2}", "{"),
        ("{a}", "{"),
        ("a\\", "\\"),
    ],
)
def test_what_is_not_known_is_named(regex: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"regex has {said}, which")):
        java_pattern(regex, "regex")


def test_a_point_is_each_character_after_the_flag_s() -> None:
    assert java_pattern("(?s)a.b|.", "x").fullmatch("a\nb")
    assert java_pattern("a.b|(?s)a.c", "x").fullmatch("a\nc")
    assert not java_pattern("a.b|(?s)a.c", "x").fullmatch("a\nb")


@pytest.mark.parametrize(
    "regex",
    [
        "(?i)a)b(c",
        "(?i)a)",
        "(?i)(a",
        "(?i)*",
        "(",
        ")",
        "[",
        "a**",
        "*",
        "a{,2}",
        "a{2,1}",
        "{a}",
        "a{",
        "[b-a]",
        "\\",
        r"\x6",
        r"\x{110000}",
        "(?<1>a)",
        r"\p{Lo",
    ],
)
def test_what_is_none_in_java_is_refused(regex: str) -> None:
    with pytest.raises(ConfigError, match=r"^regex (is no regular expression|has)"):
        java_pattern(regex, "regex")


@pytest.mark.parametrize(
    ("regex", "replacement", "topic"),
    [
        (r"(?i)DEMO\.(.*)", "x-$1", "x-shop.items"),
        (r"demo\.(.*?)", "x-$1", "x-shop.items"),  # the first match is empty after the point
        (r"[a-ce-z]*|demo.*", "x", "xdemo.shop.items"),
        (r"(?<db>[^.]+)\.(?<rest>.*)", "${rest}.${db}", "shop.items.demo"),
    ],
)
def test_a_router_replaces_the_first_match(regex: str, replacement: str, topic: str) -> None:
    record = Record("demo.shop.items", None, None, None, None)
    assert RegexRouter(regex, replacement)(record).topic == topic


def test_a_predicate_names_its_property() -> None:
    given = {
        "transforms": "f",
        "transforms.f.type": "org.apache.kafka.connect.transforms.Filter",
        "transforms.f.predicate": "p",
        "predicates.p.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.p.pattern": r"\pL+",
    }
    with pytest.raises(ConfigError, match=r"predicates\.p\.pattern has \\pL,"):
        transforms_of(given)


def test_a_router_names_its_transform() -> None:
    given = {"transforms": "a,b"}
    for name, regex in (("a", "x"), ("b", r"\pL")):
        given |= {f"transforms.{name}.type": "org.apache.kafka.connect.transforms.RegexRouter"}
        given |= {f"transforms.{name}.regex": regex, f"transforms.{name}.replacement": "y"}
    with pytest.raises(ConfigError, match=r"^transforms\.b\.regex has \\pL,"):
        transforms_of(given)
