"""A real Apache Kafka broker on loopback, from the jars of the Maven registry. Also a program.

    python tests/kafka/kafka_broker.py        # starts a broker, prints its address, ends it at Ctrl-C

One KRaft node, which is broker and controller. It can be killed and started again, on the same port and with its data.
It ends with the process that started it, even if that is killed.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))  # when this file is the program

from maven import fetch_jars, free_ports, lacking_tools, tied_to_us

__all__ = ["ARTIFACTS", "KafkaBroker"]

VERSION = "4.1.1"
ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    f"org.apache.kafka:connect-runtime:{VERSION}",  # writes the offsets of connectors, for us to read
    "org.slf4j:slf4j-simple:1.7.36",
)

START_S = 240
"""A broker needs about 6 s when it is alone on two cores; a machine that tests share may need many times that."""

JVM = (
    "-Xms128M",
    "-Xmx512M",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:MaxDirectMemorySize=128M",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


class KafkaBroker:
    """A broker whose data is in *home*. A context manager; not thread-safe.

    Clients of a ``KafkaProxy`` that listens on the port ``proxied``, and passes what comes to the port ``behind``, stay
    with the proxy.

    Args:
        jars: the directory with the jars of ``ARTIFACTS``.
    """

    def __init__(self, jars: Path, home: Path) -> None:
        self._jars = jars
        self._home = home
        self._port, self._controller, self.behind, self.proxied = free_ports(4)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where clients find it, ``host:port``: stays the same when it is started again."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> KafkaBroker:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the broker, and return when it serves clients."""
        config = self._home / "server.properties"
        if not config.exists():
            self._home.mkdir(parents=True, exist_ok=True)
            config.write_text("".join(f"{name}={value}\n" for name, value in self._properties().items()))
            cluster = uuid.uuid4().hex[:22]
            self.java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config))
        with self._log.open("ab") as log:
            begin = log.tell()
            self._process = subprocess.Popen(
                tied_to_us(self._command("kafka.Kafka", [str(config)])),
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._wait(lambda: b"Kafka Server started" in self._log.read_bytes()[begin:] and self._listens())

    def kill(self) -> None:
        """End the broker as kill -9 does, and wait until it is gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def java(self, main: str, *arguments: str) -> str:
        """Run a program of Java that comes with Kafka, and return what it prints.

        Args:
            main: its class, or the path of a source file.
        """
        done = subprocess.run(
            tied_to_us(self._command(main, arguments)), check=False, capture_output=True, text=True, timeout=START_S
        )
        if done.returncode:
            raise RuntimeError(f"{main} failed: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    @property
    def _log(self) -> Path:
        return self._home / "log.txt"

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_S
        while not condition():
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"the broker ended\n{self._log.read_text(errors='replace')[-4000:]}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the broker did not start within {START_S} s\n{self._log.read_text()[-4000:]}")
            time.sleep(0.1)

    def _command(self, main: str, arguments: Sequence[str]) -> list[str]:
        return ["java", *JVM, "-cp", f"{self._jars}/*", main, *arguments]

    def _properties(self) -> dict[str, object]:
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._controller},"
            f"PROXIED://127.0.0.1:{self.behind}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._port},PROXIED://127.0.0.1:{self.proxied}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": self._home / "data",
            "auto.create.topics.enable": "false",
            "num.network.threads": 2,
            "num.io.threads": 2,
            "background.threads": 2,
            "log.cleaner.threads": 1,
            "log.cleaner.dedupe.buffer.size": 2_097_152,
            "offsets.topic.num.partitions": 2,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            # After kill -9, a broker that comes back waits for its own old session to end.
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        }


def main() -> None:
    """Start a broker and keep it until Ctrl-C or SIGTERM."""
    if reason := lacking_tools():
        sys.exit(f"error: {reason}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    jars = fetch_jars(Path(tempfile.gettempdir()) / "rscylla-kafka", *ARTIFACTS)
    with tempfile.TemporaryDirectory() as home, KafkaBroker(jars, Path(home)) as broker:
        print(broker.address, broker.pid, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
