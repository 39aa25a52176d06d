"""A real schema registry on loopback: Apicurio's, whose ``ccompat`` API is that of Confluent's; it keeps all in memory.

The archive that the Maven registry has of it is the whole application. It ends with the process that started it.
"""

from __future__ import annotations

import signal
import subprocess
import time
import urllib.request
from pathlib import Path

from maven import free_ports, tied_to_us

__all__ = ["ARCHIVE", "ApicurioRegistry"]

ARCHIVE = "io.apicurio:apicurio-registry-app:3.0.9:tar.gz:all"

START_S = 240
"""It needs about 10 s when it is alone on two cores; a machine that tests share may need many times that."""


class ApicurioRegistry:
    """A registry, which is started and stopped, on the same port, by ``start`` and ``stop``. A context manager.

    Args:
        app: the directory with the application; see ``maven.fetch_archive``.
        home: where its log goes.
    """

    def __init__(self, app: Path, home: Path) -> None:
        [self._jar] = app.glob("*-runner.jar")
        self._log = home / "registry.log"
        [self._port] = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def start(self) -> None:
        """Start it, with nothing in it, and wait until it answers."""
        settings = {"quarkus.http.host": "127.0.0.1", "quarkus.http.port": self._port}
        options = ["-Xmx400M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options += [f"-D{name}={value}" for name, value in settings.items()]
        with self._log.open("ab") as log:
            command = tied_to_us(["java", *options, "-jar", str(self._jar)])
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        ends = time.monotonic() + START_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/subjects", timeout=5):
                    return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > ends:
                    self.stop()
                    raise RuntimeError(f"the registry does not start; see {self._log}") from None
                time.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def __enter__(self) -> ApicurioRegistry:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
