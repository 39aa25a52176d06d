"""A real Apache Cassandra cluster on loopback addresses, from the jars of the Maven registry. Also a program.

    python tests/cluster/cassandra_cluster.py        # starts three nodes, prints where they are, ends them at Ctrl-C

Nodes are processes of their own, each on an address of its own (127.0.0.1, .2, .3) with the same port, so that any
driver finds its way. They can be killed and started again; their data outlives that, and nothing outlives ``stop``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
from cassandra import DriverException
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import WhiteListRoundRobinPolicy

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))  # when this file is the program

from maven import fetch_jars, free_ports, lacking_tools, tied_to_us

__all__ = ["CASSANDRA", "CassandraCluster", "TooSlow", "reason_for_none"]

CASSANDRA = "org.apache.cassandra:cassandra-all:5.0.6"

START_S = 420
"""A node needs about 15 s when it is alone on two cores; a machine that tests share may need many times that."""

TOKENS = 4

LOGBACK = """<configuration>
  <appender name="log" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5level [%thread] %logger{0} - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="log"/></root>
</configuration>
"""

# What Cassandra's own jvm17-server.options opens.
OPENS = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.math",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.management/com.sun.jmx.remote.security",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
    "jdk.management/com.sun.management.internal",
    "jdk.naming.dns/com.sun.jndi.dns",
    "jdk.unsupported/sun.misc",
)

# Small, quick to compile, and no waiting for a ring that cannot change behind our back.
JVM = (
    "-Xms256M",
    "-Xmx512M",
    "-Xss384k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:MaxDirectMemorySize=256M",
    "-Djava.awt.headless=true",
    "-Djava.net.preferIPv4Stack=true",
    "-XX:+ExitOnOutOfMemoryError",
    "-Djdk.attach.allowAttachSelf=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.ring_delay_ms=1000",
    "-Dcassandra.available_processors=2",
    "-Dcassandra.superuser_setup_delay_ms=0",
    "-Dcassandra-foreground=yes",
)


class TooSlow(Exception):
    """What the nodes had to do took too long; the message ends with their logs."""


def reason_for_none() -> str:
    """Return why no cluster can be started on this machine, as far as that shows without trying; "" if it may be."""
    if reason := lacking_tools():
        return reason
    for host in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
        try:
            with socket.create_server((host, 0)):
                pass
        except OSError:
            return f"nothing can listen on {host}"
    return ""


@attrs.define
class _Node:
    """One node: where it is, and its process while it runs."""

    host: str
    home: Path
    tokens: str
    process: subprocess.Popen[bytes] | None = None
    logged: int = 0  # bytes of the log when this process was started

    @property
    def log(self) -> Path:
        return self.home / "log.txt"


class CassandraCluster:
    """*count* nodes under *home*. A context manager; not thread-safe."""

    def __init__(self, jars: Path, home: Path, *, count: int = 3) -> None:
        self.contact_points = [f"127.0.0.{n}" for n in range(1, count + 1)]
        self.port, self._storage_port = free_ports(2, self.contact_points)
        self._jars = jars
        # Tokens are dealt out, so that nodes own the same share each.
        step = 2**64 // (count * TOKENS)
        ring = [step * i - 2**63 for i in range(count * TOKENS)]
        self.nodes = [
            _Node(host, home / host, ",".join(map(str, ring[i::count]))) for i, host in enumerate(self.contact_points)
        ]

    def __enter__(self) -> CassandraCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the nodes one after the other, and return when each of them serves clients and knows the others.

        Not at once: nodes that join together may miss each other's tokens, and then find too few replicas for ever.
        """
        for node in self.nodes:
            self.launch(node)
            self.await_up(node)

    def launch(self, node: _Node) -> None:
        """Start the process of *node* and return at once."""
        node.home.mkdir(parents=True, exist_ok=True)
        (node.home / "cassandra.yaml").write_text(json.dumps(self._yaml(node), indent=1))  # JSON is YAML
        (node.home / "logback.xml").write_text(LOGBACK)
        with node.log.open("ab") as log:
            node.logged = log.tell()
            node.process = subprocess.Popen(
                tied_to_us(self._command(node)),
                cwd=node.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def await_up(self, node: _Node) -> None:
        """Wait until *node* serves clients and it and all others that run see each other."""
        others = [n for n in self.nodes if n is not node and n.process is not None]

        def up() -> bool:
            text = node.log.read_bytes()[node.logged :].decode(errors="replace")
            return "Starting listening for CQL clients" in text and all(
                f"{other.host}:{self._storage_port} is now UP" in text
                and self._last(other, f"{node.host}:{self._storage_port} is now UP")
                > self._last(other, f"{node.host}:{self._storage_port} is now DOWN")
                for other in others
            )

        self._wait(up, f"node {node.host} did not start", [node])
        running = [n for n in self.nodes if n.process is not None]
        self._wait(
            lambda: all(map(self._knows_tokens, running)), f"the ring with node {node.host} is not known", running
        )

    def _knows_tokens(self, node: _Node) -> bool:
        """Return whether *node* knows the tokens of all others, without which it finds too few replicas."""
        profile = ExecutionProfile(WhiteListRoundRobinPolicy([node.host]), request_timeout=60)
        cluster = Cluster(
            [node.host],
            port=self.port,
            protocol_version=4,
            connect_timeout=60,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        )
        try:
            rows = cluster.connect().execute("SELECT peer, tokens FROM system.peers")
            known = {row.peer for row in rows if row.tokens}
        except (DriverException, NoHostAvailable):
            return False
        finally:
            cluster.shutdown()
        return known >= {other.host for other in self.nodes if other.process is not None} - {node.host}

    def await_down(self, node: _Node) -> None:
        """Wait until the nodes that run have noticed that *node* is gone."""
        others = [n for n in self.nodes if n is not node and n.process is not None]

        def down() -> bool:
            return all(
                self._last(other, f"{node.host}:{self._storage_port} is now DOWN")
                > self._last(other, f"{node.host}:{self._storage_port} is now UP")
                for other in others
            )

        self._wait(down, f"nobody noticed that node {node.host} is gone", others)

    def _last(self, node: _Node, words: str) -> int:
        return node.log.read_bytes().rfind(words.encode())

    def kill(self, node: _Node) -> None:
        """End the process of *node* as kill -9 does, and wait until it is gone."""
        if node.process is not None:
            node.process.send_signal(signal.SIGKILL)
            node.process.wait()
            node.process = None

    def stop(self) -> None:
        """End all nodes. Nothing is flushed: their data is not needed any more."""
        for node in self.nodes:
            self.kill(node)

    def logs(self, lines: int = 40) -> str:
        """Return the last lines of the logs of all nodes."""
        texts = [(n.host, n.log.read_text(errors="replace").splitlines()) for n in self.nodes if n.log.exists()]
        return "\n".join(f"--- {host}\n" + "\n".join(text[-lines:]) for host, text in texts)

    def _wait(self, condition: Callable[[], bool], otherwise: str, nodes: Sequence[_Node]) -> None:
        deadline = time.monotonic() + START_S
        while not condition():
            for node in nodes:
                if node.process is None or node.process.poll() is not None:
                    raise RuntimeError(f"{otherwise}: it ended\n{self.logs()}")
            if time.monotonic() > deadline:
                raise TooSlow(f"{otherwise} within {START_S} s\n{self.logs()}")
            time.sleep(0.2)

    def _command(self, node: _Node) -> list[str]:
        [agent] = self._jars.glob("jamm-*.jar")
        opens = itertools.chain.from_iterable(
            (f"--add-opens={one}=ALL-UNNAMED", f"--add-exports={one}=ALL-UNNAMED") for one in OPENS
        )
        return [
            "java",
            *JVM,
            *opens,
            f"-javaagent:{agent}",
            f"-Dcassandra.config=file://{node.home}/cassandra.yaml",
            f"-Dcassandra.storagedir={node.home}/data",
            f"-Dcassandra.logdir={node.home}",
            f"-Dlogback.configurationFile=file://{node.home}/logback.xml",
            f"-Djava.io.tmpdir={node.home}",
            "-cp",
            f"{node.home}:{self._jars}/*",
            "org.apache.cassandra.service.CassandraDaemon",
        ]

    def _yaml(self, node: _Node) -> dict[str, object]:
        seeds = {"class_name": "org.apache.cassandra.locator.SimpleSeedProvider"}
        return {
            "cluster_name": "rscylla tests",
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "endpoint_snitch": "SimpleSnitch",
            "seed_provider": [{**seeds, "parameters": [{"seeds": ",".join(self.contact_points)}]}],
            "num_tokens": TOKENS,
            "initial_token": node.tokens,
            "auto_bootstrap": False,
            "listen_address": node.host,
            "rpc_address": node.host,
            "storage_port": self._storage_port,
            "native_transport_port": self.port,
            "start_native_transport": True,
            "commitlog_sync": "periodic",
            "commitlog_sync_period": "1000ms",
            "commitlog_segment_size": "8MiB",
            "commitlog_total_space": "128MiB",
            "memtable_heap_space": "64MiB",
            "memtable_offheap_space": "64MiB",
            "file_cache_enabled": False,
            "key_cache_size": "0MiB",
            "counter_cache_size": "0MiB",
            "concurrent_reads": 8,
            "concurrent_writes": 8,
            "concurrent_compactors": 1,
            "auto_snapshot": False,
            "hinted_handoff_enabled": True,
            # Machines that tests share stop for seconds: no node is given up for that, and no request.
            "phi_convict_threshold": 12,
            "read_request_timeout": "20s",
            "range_request_timeout": "20s",
            "write_request_timeout": "20s",
            "cas_contention_timeout": "20s",
            "dynamic_snitch": False,
        }


def main() -> None:
    """Start a cluster and keep it until Ctrl-C or SIGTERM."""
    if reason := reason_for_none():
        sys.exit(f"error: {reason}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    jars = fetch_jars(Path(tempfile.gettempdir()) / "rscylla-cluster", CASSANDRA)
    with tempfile.TemporaryDirectory() as home, CassandraCluster(jars, Path(home)) as cluster:
        print(",".join(f"{host}:{cluster.port}" for host in cluster.contact_points), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
