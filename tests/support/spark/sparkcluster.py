"""A standalone Spark cluster on loopback, of the installed PySpark: a master and workers, each a process of its own.

A worker and all that it starts, its executors and their Python workers, are one session of processes, so they can be
killed together. All end with the process that started them. Linux only, see ``sparkapps``.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from signal import SIGKILL

import pyspark
from maven import free_ports, tied_to_us
from sparkapps import kill_session, processes_of, quick_environment, wait_until

from rscylla.spark import ensure_java

__all__ = ["SparkCluster", "spark_cluster"]

EXECUTOR = "CoarseGrainedExecutorBackend"
START_S = 240


class SparkCluster:
    """See ``spark_cluster``. Not thread-safe."""

    def __init__(self, home: Path, workers: int) -> None:
        self.home = home
        self.hosts = [f"127.0.0.{n}" for n in range(1, workers + 1)]
        """Each worker has an address of its own, so Spark takes them for machines."""
        self._port, self.ui_port, *self._worker_ui = free_ports(2 + workers, ("127.0.0.1", *self.hosts[1:]))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    @property
    def pages(self) -> list[str]:
        """The addresses of the master's page and of those of the workers."""
        workers = zip(self.hosts, self._worker_ui, strict=True)
        return [f"http://127.0.0.1:{self.ui_port}", *(f"http://{host}:{port}" for host, port in workers)]

    @property
    def recovery(self) -> Path:
        """Where the master keeps what it needs to go on after it was killed."""
        return self.home / "recovery"

    def log(self, name: str) -> Path:
        """Where ``master`` or the worker of a host writes its log."""
        return self.home / f"{name}.log"

    def start_master(self) -> None:
        """Start the master. It remembers its workers and applications from before it was killed."""
        options = f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={self.recovery}"
        arguments = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self.ui_port)]
        self._start("master", "org.apache.spark.deploy.master.Master", arguments, "127.0.0.1", options)
        self._await("master", "elected leader! New state:")

    def start_worker(self, number: int) -> None:
        """Start the worker of that number, from 0; it has one core."""
        host, ui = self.hosts[number], self._worker_ui[number]
        work = self.home / f"work-{host}"
        arguments = ["--host", host, "--webui-port", str(ui), "--cores", "1", "--memory", "600M"]
        command = [*arguments, "--work-dir", str(work), self.master]
        self._start(host, "org.apache.spark.deploy.worker.Worker", command, host)
        self._await(host, "Successfully registered with master")

    def kill(self, name: str) -> None:
        """Kill -9 ``master``, or the worker of a host with all its executors."""
        process = self._processes.pop(name)
        kill_session(process.pid)
        process.wait()

    def runs(self, name: str) -> bool:
        return self._processes[name].poll() is None

    def kill_executor(self, host: str) -> bool:
        """Kill -9 the executors of a worker, without their Python workers; return whether there was one."""
        found = [pid for pid, command in processes_of(self._processes[host].pid).items() if EXECUTOR in command]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, SIGKILL)
        return bool(found)

    def close(self) -> None:
        for name in list(self._processes):
            self.kill(name)

    def _start(self, name: str, main: str, arguments: list[str], host: str, options: str = "") -> None:
        home = Path(pyspark.__file__).parent
        environment = {
            **quick_environment(),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": options,
        }
        with self.log(name).open("wb") as log:
            self._processes[name] = subprocess.Popen(
                tied_to_us([str(home / "bin" / "spark-class"), main, *arguments]),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def _await(self, name: str, text: str) -> None:
        log = self.log(name)

        def found() -> bool:
            assert self.runs(name), f"{name} ended: {log.read_text()[-2000:]}"
            return text in log.read_text()

        wait_until(found, lambda: f"{name} does not start: {log.read_text()[-2000:]}", seconds=START_S)


@contextmanager
def spark_cluster(home: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """Start a master and workers with one core each, and kill them at the end of the block. Logs are in *home*."""
    ensure_java()
    cluster = SparkCluster(home, workers)
    with ExitStack() as stack:
        stack.callback(cluster.close)
        cluster.start_master()
        for number in range(workers):
            cluster.start_worker(number)
        yield cluster
