"""Java programs for tests: their jars from the Maven registry, ports, and processes that end with ours."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["NoJars", "fetch_archive", "fetch_jars", "free_ports", "lacking_tools", "tied_to_us"]

FETCH_S = 240

_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>\n    "
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rscylla.tests</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencies>
    {}
  </dependencies>
</project>
"""


class NoJars(Exception):
    """The jars could not be had; the message says why."""


def lacking_tools() -> str:
    """Return which of the tools that run Java programs are not on the path, in words; "" if none."""
    if lacking := [tool for tool in ("java", "mvn") if shutil.which(tool) is None]:
        return f"there is no {' and no '.join(lacking)} on the path"
    return ""


def fetch_jars(cache: Path, *artifacts: str) -> Path:
    """Return the directory with the jars of *artifacts* and what they need, fetched unless they are in *cache*.

    Args:
        artifacts: ``group:artifact:version``; the first one names the directory.

    Raises:
        NoJars: they could not be had.
    """
    home = cache / artifacts[0].partition(":")[2].replace(":", "-")
    jars = home / "lib"
    pom, done = home / "pom.xml", home / "complete"
    text = _POM.format("".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts).rstrip())
    if done.exists() and pom.read_text() == text:
        return jars
    shutil.rmtree(home, ignore_errors=True)
    jars.mkdir(parents=True)
    pom.write_text(text)
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    command = ["mvn", "-B", "-q", "-f", str(pom), goal, f"-DoutputDirectory={jars}"]
    try:
        subprocess.run(command, check=True, timeout=FETCH_S, capture_output=True, text=True)
    except subprocess.TimeoutExpired as e:
        raise NoJars(f"mvn did not fetch {artifacts[0]} within {FETCH_S} s") from e
    except subprocess.CalledProcessError as e:
        last = [line for line in (e.stdout + e.stderr).splitlines() if "ERROR" in line][:1]
        raise NoJars(f"mvn could not fetch {artifacts[0]}: {' '.join(last)[:300]}") from e
    done.touch()
    return jars


def tied_to_us(command: Sequence[str]) -> list[str]:
    """Return *command*, so that its process is killed when ours ends, however that happens; where Linux can do it."""
    setpriv = shutil.which("setpriv")
    return [*([setpriv, "--pdeathsig", "KILL"] if setpriv else []), *command]


def free_ports(count: int, hosts: Sequence[str] = ("127.0.0.1",)) -> list[int]:
    """Return ports that are free on all *hosts* just now."""
    found: list[int] = []
    while len(found) < count:
        with socket.create_server((hosts[0], 0)) as probe:
            port = probe.getsockname()[1]
            try:
                for host in hosts[1:]:
                    socket.create_server((host, port)).close()
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


def fetch_archive(cache: Path, artifact: str) -> Path:
    """Return the directory with what is in an archive, ``group:artifact:version:tar.gz:classifier``, as ``fetch_jars``.

    Raises:
        NoJars: it could not be had.
    """
    home = cache / artifact.partition(":")[2].replace(":", "-")
    done = home / "complete"
    if done.exists():
        return home
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    archive = home / "archive.tar.gz"
    # Later versions of the plugin read the parent of the artifact, which need not be published.
    goal = "org.apache.maven.plugins:maven-dependency-plugin:2.8:get"
    command = ["mvn", "-B", "-q", goal, f"-Dartifact={artifact}", "-Dtransitive=false", f"-Ddest={archive}"]
    try:
        subprocess.run(command, check=True, timeout=FETCH_S, capture_output=True, text=True)
        shutil.unpack_archive(archive, home, filter="data")
        archive.unlink()
    except subprocess.TimeoutExpired as e:
        raise NoJars(f"mvn did not fetch {artifact} within {FETCH_S} s") from e
    except subprocess.CalledProcessError as e:
        last = [line for line in (e.stdout + e.stderr).splitlines() if "ERROR" in line][:1]
        raise NoJars(f"mvn could not fetch {artifact}: {' '.join(last)[:300]}") from e
    done.touch()
    return home
