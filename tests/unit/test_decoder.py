"""Which decoder runs, and how users choose it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import rscylla
from rscylla import _decoder

CODE = """
import rscylla
from rscylla.cdc.rows import new_rows
from rscylla.types import Type, decoder_for
print(rscylla.__decoder__, type(new_rows()).__module__, type(decoder_for(Type("int"))).__module__)
"""


def said(**environment: str) -> list[str]:
    own = {name: value for name, value in os.environ.items() if name != "RSCYLLA_PURE"}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env={**own, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize("value", ["1", "yes"])
def test_the_environment_chooses_the_decoder_in_python(value: str) -> None:
    assert said(RSCYLLA_PURE=value) == ["pure", "rscylla.cdc.rows", "builtins"]


@pytest.mark.parametrize("environment", [{}, {"RSCYLLA_PURE": ""}, {"RSCYLLA_PURE": "0"}])
def test_the_compiled_decoder_runs_where_it_was_built(environment: dict[str, str]) -> None:
    pytest.importorskip("rscylla.cdc.compiled")
    assert said(**environment) == ["compiled", "rscylla.cdc.compiled", "rscylla.types.compiled"]


def test_it_is_said_why_no_compiled_decoder_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rscylla.__decoder__ == _decoder.decoder()
    monkeypatch.setattr(_decoder, "_IS_PURE", True)
    assert (_decoder.decoder(), _decoder.why_pure()) == ("pure", "RSCYLLA_PURE is set")
    monkeypatch.setattr(_decoder, "_IS_PURE", False)
    monkeypatch.setitem(sys.modules, "rscylla.cdc.compiled", None)
    assert (_decoder.decoder(), _decoder.why_pure()) == ("pure", "rscylla was installed without a C compiler")
