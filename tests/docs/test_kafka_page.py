"""docs/kafka.md has the properties that the code has, and the examples/kafka are what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rscylla.kafka import PROPERTIES, Properties

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "kafka"


def test_the_page_has_the_table_of_the_code() -> None:
    shown = [line for line in (ROOT / "docs" / "kafka.md").read_text().splitlines() if line.startswith("| `")]
    assert shown == [
        f"| `{one.name}` | {'' if one.default is None else f'`{one.default}`'} | {one.status} | {one.meaning} |"
        for one in PROPERTIES
    ]


def test_the_properties_of_the_example_are_right() -> None:
    found = Properties.read(EXAMPLE / "connector.properties", env={"SCYLLA_USER": "u", "SCYLLA_PASSWORD": "p"})
    assert found.findings == ()


def test_the_manifest_probes_what_the_service_serves() -> None:
    manifest = yaml.safe_load((EXAMPLE / "kubernetes.yaml").read_text())
    [container] = manifest["spec"]["template"]["spec"]["containers"]
    paths = [container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("liveness", "readiness")]
    assert paths == ["/healthz", "/readyz"]
    assert '--port", "8080' in (EXAMPLE / "Containerfile").read_text()


@pytest.mark.parametrize("name", ["Containerfile", "kubernetes.yaml", "rscylla-kafka.service"])
def test_the_readme_of_examples_names_each_file(name: str) -> None:
    assert name in (EXAMPLE / "README.md").read_text()
