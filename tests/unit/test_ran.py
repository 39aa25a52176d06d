"""The check that no test was left out by all environments, on reports that pytest wrote."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ran import left_out

MODULE = """
import pytest

def test_runs():
    pass

class TestHere:
    @pytest.mark.parametrize("n", [1, 2])
    def test_may_be_skipped(self, n):
        if n == {skipped}:
            pytest.skip("no Java")
"""

pytestmark = pytest.mark.slow

WHOLE = 'import pytest\n\npytest.importorskip("no_such_package")\n\ndef test_never():\n    pass\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tests" / "spark").mkdir(parents=True)
    return tmp_path


def report(tree: Path, name: str, *arguments: str) -> Path:
    path = tree / f"{name}.xml"
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        f"--junitxml={path}",
        "-o",
        "junit_family=xunit1",
    ]
    subprocess.run([sys.executable, "-m", "pytest", *options, *arguments], cwd=tree, capture_output=True, timeout=100)
    return path


def test_a_test_that_some_environment_runs_is_not_left_out(tree: Path) -> None:
    test = tree / "tests" / "test_a.py"
    reports = []
    for skipped in (1, 2):
        test.write_text(MODULE.format(skipped=skipped))
        reports.append(report(tree, f"env{skipped}", "tests"))
    assert left_out(["tests/test_a.py"], reports, []) == []
    (line,) = left_out(["tests/test_a.py"], reports[:1], [])
    assert line.startswith("tests/test_a.py::TestHere::test_may_be_skipped[1]: skipped in each environment that has it")
    assert "no Java" in line


def test_a_file_that_is_collected_nowhere_or_skipped_as_a_whole_is_left_out(tree: Path) -> None:
    (tree / "tests" / "test_a.py").write_text(MODULE.format(skipped=0))
    (tree / "tests" / "spark" / "test_b.py").write_text(WHOLE)
    files = ["tests/test_a.py", "tests/spark/test_b.py"]
    only_a = report(tree, "only_a", "tests/test_a.py")
    assert left_out(files, [only_a], ["tests/spark"]) == ["tests/spark/test_b.py: collected in no environment"]
    both = report(tree, "both", "tests")
    (line,) = left_out(files, [only_a, both], [])
    assert "tests/spark/test_b.py" in line
    assert "no_such_package" in line
    assert left_out(files, [only_a, both], ["tests/spark"]) == []
    (tree / "tests" / "spark" / "test_b.py").write_text(WHOLE.replace("no_such_package", "pytest"))
    assert left_out(files, [only_a, both, report(tree, "with_it", "tests/spark")], []) == []


def test_a_file_of_inherited_tests_was_collected(tree: Path) -> None:
    (tree / "suite.py").write_text("class Suite:\n    def test_it(self):\n        pass\n")
    test = tree / "tests" / "test_a.py"
    test.write_text("from suite import Suite\n\nclass TestHere(Suite):\n    pass\n")
    assert left_out(["tests/test_a.py"], [report(tree, "env", "tests")], []) == []
