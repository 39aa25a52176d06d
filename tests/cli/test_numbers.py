"""Every number that a command takes, of whatever command: what is none, or is out of its range, is wrong usage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from rscylla.cli.app import app

from .conftest import Run

NUMBERS = {"M", "N", "P", "PORT", "RULE", "S", "SECONDS"}
"""How the help writes the value of an option that is a number."""

GIVEN = {"fault": "read-timeout", "hosts": "127.0.0.1:1", "control": "/nowhere", "old": "1", "new": "2"}
"""Values of other options, by name; those that have none here and are required get a text. There is no server."""


def commands(command: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield names, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *names, name)


OPTIONS = [
    pytest.param(names, command, option, id=" ".join((*names, option.name)))
    for names, command in commands(typer.main.get_command(app))
    for option in command.params
    if option.metavar in NUMBERS and option.name != "probability"  # which the server judges
]


def arguments(command: Any, option: Any, value: str) -> list[str]:
    """Return a command line with *value* for *option*, and with all else that *command* requires."""
    options, positional = [], []
    for each in command.params:
        if each is option or each.required or each.name in GIVEN:
            text = value if each is option else GIVEN.get(each.name, "1" if each.metavar in NUMBERS else "ks.orders")
            if each.param_type_name == "argument":
                positional.append(text)
            else:
                options.append(f"{each.opts[0]}={text}")
    return [*options, "--", *positional] if positional else options


@pytest.mark.parametrize(("names", "command", "option"), OPTIONS)
def test_what_is_no_number_in_range_is_wrong_usage(run: Run, names: tuple[str, ...], command: Any, option: Any) -> None:
    for value in ("inf", "nan", "1e300"):
        ran = run(*names, *arguments(command, option, value))
        assert ran.code == 2, (value, ran)


@pytest.mark.parametrize(("names", "command", "option"), OPTIONS)
def test_a_negative_number_is_taken_or_is_wrong_usage(
    run: Run, names: tuple[str, ...], command: Any, option: Any
) -> None:
    ran = run(*names, *arguments(command, option, "-1"))
    if names[:2] != ("serve", "ctl"):
        assert ran.code == 2, ran
    assert not any("unexpected" in line for line in ran.err)
