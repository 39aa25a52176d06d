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


def said(code: str, **environment: str) -> str:
    """Return what *code* prints in a process of its own."""
    own = {name: value for name, value in os.environ.items() if name != "RSCYLLA_PURE"}
    # -P: the rscylla that these tests run with, not the tree that they may be started in.
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env={**own, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("value", ["1", "yes"])
def test_the_environment_chooses_the_decoder_in_python(value: str) -> None:
    assert said(CODE, RSCYLLA_PURE=value).split() == ["pure", "rscylla.cdc.rows", "builtins"]


@pytest.mark.parametrize("environment", [{}, {"RSCYLLA_PURE": ""}, {"RSCYLLA_PURE": "0"}])
def test_the_compiled_decoder_runs_where_it_was_built(environment: dict[str, str]) -> None:
    pytest.importorskip("rscylla.cdc.compiled")
    assert said(CODE, **environment).split() == ["compiled", "rscylla.cdc.compiled", "rscylla.types.compiled"]


def test_it_is_said_why_no_compiled_decoder_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rscylla.__decoder__ == _decoder.decoder()
    monkeypatch.setattr(_decoder, "_IS_PURE", True)
    assert (_decoder.decoder(), _decoder.why_pure()) == ("pure", "RSCYLLA_PURE is set")
    monkeypatch.setattr(_decoder, "_IS_PURE", False)
    monkeypatch.setitem(sys.modules, "rscylla.cdc.compiled", None)
    assert (_decoder.decoder(), _decoder.why_pure()) == ("pure", "rscylla was installed without a C compiler")


def test_a_decoder_that_is_there_but_cannot_be_imported_is_not_called_missing() -> None:
    pytest.importorskip("rscylla.cdc.compiled")
    code = """
import sys
sys.modules["rscylla.types.compiled"] = None
from rscylla._decoder import why_pure
print(why_pure())
"""
    assert said(code).startswith("the compiled decoder cannot be imported: import of rscylla.types.compiled")
