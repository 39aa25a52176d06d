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
        (r"a(?i)b", "ab aB"),
        (r"x|a(?i)b|A", "a A ab aB"),  # flags hold for the branches that follow
        (r"(x|(?i)a)b?", "a A ab"),
        (r"(?i)a(?-i)b?", "a A ab"),
        (r"(?i:a)B?", "a A aB"),
        (r"(?s).*b", "b ab a.b a\tb"),
        (r"[a-d&&[^bc]]", "a d"),
        (r"[a-z&&[^b]&&[^d]]+", "a aa"),
        (r"[ab&&[bc]d]", "b"),
        (r"[^a-z&&[^A]]+", "A - ] & 12"),
        (r"[a[b-d]]", "a b d"),
        (r"[^a[b]]", "A d - ] &"),
        (r"[a&\]]", "a ] &"),
        (r"[a-]+", "a - aa"),
        (r"[\w&&\D]+", "a A b d ab aB aa"),
        (r"a++", "a aa"),
        (r"a?+a", "aa"),
        (r"(?>a|ab)\.?b?", "a ab a.b"),
        (r"\Qa.b\E|\Qd", "d a.b"),
        (r"\p{Lower}+", "a b d ab aa"),
        (r"\P{Alpha}+", "- ] & 12"),
        (r"[\p{Upper}\p{Digit}]+", "A 12"),
        (r"a\hb", "a\tb"),
        (r"\H+\z", "a A b d ab aB a.b - ] & aa demo.shop.items DEMO.shop.items 12"),
        (r"a\Z|b$", "a b"),
        (r"\x61|\x{62}|\u0064|\055", "a b d -"),
        (r"(?<first>a)\k<first>", "aa"),
        (r"(a)\11?", "aa"),
        (r"[^\W\d]", "a A b d"),
        (r"\]|\&", "] &"),
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
        (r"\pL+", r"\p{L}"),
        (r"[\p{javaLowerCase}]", r"\p{javaLowerCase}"),
        (r"(?x)a b", "the flag 'x'"),
        (r"(?iu)a", "the flag 'u'"),
        (r"(?U:\w)", "the flag 'U'"),
        (r"\Ga", r"\G"),
        (r"\X", r"\X"),
        (r"\b{g}", r"the boundary \b{"),
        (r"[\Qa\E]", r"\Q within a class"),
        (r"[a&&&b]", "&&&"),
        (r"[a&&]", "an empty class"),
        (r"(a)\2", r"a reference \2 before its group"),
        (r"(?P<n>a)", "a group (?P"),
        (r"(?#comment)a", "a group (?#"),
        (r"\Qab\E+", r"a quantifier after \E"),
        (r"\N{DIGIT ONE}", r"\N"),
        (r"\ud83d\ude00", "a half of a pair of surrogates"),
    ],
)
def test_what_is_not_known_is_named(regex: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"regex has {said}")):
        java_pattern(regex, "regex")


@pytest.mark.parametrize(
    "regex",
    [
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
        (r"[a-z&&[^d]]*|demo.*", "x", "xdemo.shop.items"),
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
    with pytest.raises(ConfigError, match=r"predicates\.p\.pattern has \\p\{L\}"):
        transforms_of(given)


def test_a_router_names_its_transform() -> None:
    given = {"transforms": "a,b"}
    for name, regex in (("a", "x"), ("b", r"\pL")):
        given |= {f"transforms.{name}.type": "org.apache.kafka.connect.transforms.RegexRouter"}
        given |= {f"transforms.{name}.regex": regex, f"transforms.{name}.replacement": "y"}
    with pytest.raises(ConfigError, match=r"^transforms\.b\.regex has \\p\{L\}"):
        transforms_of(given)
