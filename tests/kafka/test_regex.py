"""Regular expressions match what they match in Java, where they are taken."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from maven import lacking_tools, tied_to_us

from rscylla.debezium import java_pattern
from rscylla.errors import ConfigError

SOURCE = Path(__file__).with_name("Regex.java")
ROUNDS = 1500
TEXTS = (
    *("", "a", "A", "b", "ab", "AB", "abc", "aBc", "a.b", "demo.shop.items", "Demo.Shop.ITEMS", "a-b_c", "x1", "12"),
    *(
        "a1b22",
        "aa",
        "aaa",
        "bab",
        " ",
        "a b",
        "d.",
        "..",
        "[a]",
        "a&b",
        "a&&b",
        "^",
        "]",
        "-",
        "a{2}",
        "$1",
        "zzz",
        "Q",
    ),
)
PARTS = (
    *("a", "b", "c", "A", "B", ".", "_", "1", "-", "^", "$", "&", r"\.", r"\-", r"\x41", r"\d", r"\w", r"\W", r"\S"),
    *(r"\h", r"\b", r"\z", r"\1", r"\2", r"\k<n>", "(", "(?:", "(?i:", "(?-i:", "(?="),
    *("(?!", "(?>", "(?<n>", "(?<=", "(?<!", ")", "|", "*", "+", "?", "??", "*?", "++", "{2}", "{1,2}", "{0,}"),
    *("(?s)", "|(?i)", r"[\w-", r"\d-", r"\Q", r"\E", r"\Q.1\E"),
    *("(?i)", "[", "[^", "[^]", "]", "]", "&&", "[a-c]", "[^ab]", "[a-z&&[^b]]"),
)


class Java:
    """Java's own, asked line by line; a context manager."""

    def __enter__(self) -> Java:
        command = ["java", "-Xmx128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", str(SOURCE)]
        self._process = subprocess.Popen(
            tied_to_us(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(30)

    def matches(self, regex: str) -> list[str] | None:
        """Return each text with its first match in brackets, "-" where none is whole; None if it is no expression."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join([regex, *TEXTS]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline().rstrip("\n")
        return None if line == "error" else line.split("\t")


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    if reason := lacking_tools():
        pytest.skip(f"Java cannot be asked: {reason}")
    with Java() as found:
        yield found


def ours(regex: str) -> list[str]:
    pattern = java_pattern(regex, "regex")
    return [pattern.sub(r"[\g<0>]", text, count=1) if pattern.fullmatch(text) else "-" for text in TEXTS]


@pytest.mark.parametrize("seed", range(4))
def test_expressions_at_random(java: Java, seed: int) -> None:
    dice = random.Random(seed)
    same = refused = 0
    for _ in range(ROUNDS):
        regex = "".join(dice.choices(PARTS, k=dice.randint(1, 9)))
        if dice.random() < 0.7:
            regex += ")" * max(0, regex.count("(") - regex.count("(?i)") - regex.count(")"))
        if dice.random() < 0.1:
            regex = f"(?i){regex}"
        theirs = java.matches(regex)
        try:
            found = ours(regex)
        except ConfigError:
            refused += theirs is not None
            continue
        assert found == theirs, regex
        same += 1
    assert same > ROUNDS / 5
    assert refused < same
