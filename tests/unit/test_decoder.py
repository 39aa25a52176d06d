"""Which decoder runs, and how users choose it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rscylla
from rscylla import _decoder

CODE = """
import rscylla
from rscylla.cdc.rows import new_rows
from rscylla.types import Type, decoder_for
print(rscylla.__decoder__, type(new_rows()).__module__, type(decoder_for(Type("int"))).__module__)
"""

HERE = Path(rscylla.__file__).parent


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
    assert said(CODE, RSCYLLA_PURE=value).split() == ["pure", "rscylla.cdc.rows.rows", "builtins"]


@pytest.mark.parametrize("environment", [{}, {"RSCYLLA_PURE": ""}, {"RSCYLLA_PURE": "0"}])
def test_the_compiled_decoder_runs_where_it_was_built(environment: dict[str, str]) -> None:
    pytest.importorskip("rscylla.cdc.rows.compiled")
    assert said(CODE, **environment).split() == ["compiled", "rscylla.cdc.rows.compiled", "rscylla.types.compiled"]


def test_it_is_said_why_no_compiled_decoder_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rscylla.__decoder__ == _decoder.decoder()
    monkeypatch.setattr(_decoder, "_IS_PURE", True)
    assert (_decoder.decoder(), _decoder.why_pure()) == ("pure", "RSCYLLA_PURE is set")
    monkeypatch.setattr(_decoder, "_IS_PURE", False)
    monkeypatch.setitem(sys.modules, "rscylla.cdc.rows.compiled", None)
    assert (_decoder.decoder(), _decoder.why_pure()) == ("pure", "rscylla was installed without a C compiler")


def test_a_decoder_that_is_there_but_cannot_be_imported_is_not_called_missing() -> None:
    pytest.importorskip("rscylla.cdc.rows.compiled")
    code = """
import sys
sys.modules["rscylla.types.compiled"] = None
from rscylla._decoder import why_pure
print(why_pure())
"""
    assert said(code).startswith("the compiled decoder cannot be imported: import of rscylla.types.compiled")


def test_the_sources_of_the_compiled_decoder_are_all_known() -> None:
    found = {str(path.relative_to(HERE)) for path in HERE.rglob("*") if path.suffix in (".pyx", ".pxd")}
    assert found == {name for names in _decoder.SOURCES.values() for name in names}


@pytest.mark.parametrize("source", ["types/compiled.pyx", "types/wire.pxd", "cdc/rows/compiled.pyx"])
def test_a_decoder_that_was_built_from_other_sources_is_not_used(tmp_path: Path, source: str) -> None:
    pytest.importorskip("rscylla.cdc.rows.compiled")
    shutil.copytree(HERE, tmp_path / "rscylla", ignore=shutil.ignore_patterns("*.c", "__pycache__", "spark"))
    with (tmp_path / "rscylla" / source).open("a") as changed:
        changed.write("# the build of this failed\n")
    done = subprocess.run(
        [sys.executable, "-c", f"{CODE}\nfrom rscylla._decoder import why_pure\nprint(why_pure())"],
        env={name: value for name, value in os.environ.items() if name != "RSCYLLA_PURE"},
        cwd=tmp_path,  # comes first where modules are looked for
        capture_output=True,
        text=True,
        check=True,
    )
    runs, why = done.stdout.splitlines()
    room = "cdc/rows" if source.startswith("cdc") else "types"
    assert runs.split()[:2] == ["pure", "rscylla.cdc.rows.rows"]
    assert why.startswith(f"{tmp_path}/rscylla/{room}/compiled.")
    assert "was built from other sources than those beside it; install rscylla again" in why
    assert why in done.stderr


def test_it_is_said_once_that_a_decoder_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rscylla.cdc.rows.compiled")
    monkeypatch.setattr(_decoder, "_IS_PURE", False)
    monkeypatch.setattr(_decoder, "sum_of_sources", lambda _: 1)
    monkeypatch.setattr(_decoder, "_told", set())
    with pytest.warns(RuntimeWarning, match="rscylla decodes in Python, which takes longer: .* install rscylla again"):
        assert _decoder.compiled("cdc.rows") is None
    assert _decoder.compiled("cdc.rows") is None
    assert _decoder.decoder() == "pure"


def test_a_decoder_without_its_sources_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiled = pytest.importorskip("rscylla.cdc.rows.compiled")
    monkeypatch.setattr(_decoder, "_IS_PURE", False)
    monkeypatch.setattr(_decoder, "_HERE", tmp_path)
    assert _decoder.compiled("cdc.rows") is compiled
