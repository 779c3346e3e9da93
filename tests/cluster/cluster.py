"""A Spark cluster on this machine: a standalone master and workers. The workers cannot see the driver's folders and
processes, or the disks of other workers.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import destinations
import origins
import runners
import stages
from tests.child import LONGEST, Child, clean_environment, list_descendants
from tests.stores.jars import FOLDER

APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Starts a process with separate mounts and processes. All of them end with it."""

HIDE = """
set -e
exec 9<"$1"
work=$1; shift
while [ "$1" != -- ]; do
  mount -t tmpfs -o size=64m tmpfs "$1"
  shift
done
shift
mkdir -p "$work"
mount --no-canonicalize --bind /proc/self/fd/9 "$work"
exec 9<&-
cd "$work"
exec "$@"
"""
"""Mounts an empty disk over each folder, and then the worker's folder at its place. Then runs a command."""


OWN_JARS = "../../jars/*"
"""The JARs of a worker, as `spark.executor.extraClassPath` names them relative to an executor's working directory."""


class Cluster:
    """A master and its workers. `settings` are the settings for a driver."""

    def __init__(self, folder: Path, hidden: Sequence[Path], workers: int = 2) -> None:
        self._folder, self._hidden, self._workers = folder, [each.resolve() for each in hidden], workers
        self._children: list[Child | None] = []
        master = [_find_spark_class(), "org.apache.spark.deploy.master.Master"]
        master += ["-h", "127.0.0.1", "-p", "0", "--webui-port", "0"]
        self._master = Child(master, folder / "master.log", _make_environment(folder))
        self.master = self._master.wait_for(r"Starting Spark master at (spark://127\.0\.0\.1:[1-9]\d*)").group(1)
        """The address of the master, as `spark.master` needs it."""
        self.start_missing_workers()

    @property
    def settings(self) -> dict[str, str]:
        """The settings for one small executor on each worker, and a driver on loopback."""
        return {
            "spark.master": self.master,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.cores.max": str(self._workers),
            "spark.executor.cores": "1",
        }

    def start_missing_workers(self) -> None:
        """Start a worker for each killed one. Return once the master has registered them."""
        self._children += [None] * (self._workers - len(self._children))
        started = {}
        for number, child in enumerate(self._children):
            if child is None or not child.is_alive():
                started[number] = self._children[number] = self._start_worker(number)
        for child in started.values():
            child.wait_for("Successfully registered with master")

    def _start_worker(self, number: int) -> Child:
        work = self._folder / f"worker-{number}"
        work.mkdir(parents=True, exist_ok=True)
        worker = [_find_spark_class(), "org.apache.spark.deploy.worker.Worker", self.master]
        host = f"127.0.0.{2 + number}"  # on one host, executors read each other's disks
        worker += ["-h", host, "-c", "1", "-m", "1g", "-d", str(work), "--webui-port", "0"]
        hide = ["bash", "-c", HIDE, "hide", str(work), *map(str, self._hidden), "--"]
        log = self._folder / f"worker-{number}.log"
        return Child([*APART, *hide, *worker], log, _make_environment(work, host))

    def give_jars(self, number: int, jars: Sequence[Path]) -> None:
        """Put only these JARs into the folder of `OWN_JARS` on a worker."""
        place = self._folder / f"worker-{number}/jars"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        for jar in jars:
            shutil.copy(jar, place)

    def kill_worker(self, number: int) -> None:
        """Kill a worker with all its executors, as if its machine failed. Return once the master has noticed."""
        child = self._children[number]
        assert child is not None
        lost = self._master.read_log().count("Removing worker ") + 1
        child.end()
        self._master.wait_for(rf"(?:Removing worker [\s\S]*){{{lost}}}")

    def count_workers(self) -> int:
        """Return the number of workers that the master knows."""
        log = self._master.read_log()
        return log.count("Registering worker ") - log.count("Removing worker ")

    def list_executors(self, number: int) -> list[int]:
        """Return the processes of a worker's executors."""
        child = self._children[number]
        assert child is not None
        return [each for each in list_descendants(child.pid) if _is_executor(each)]

    def wait_for_executor(self, number: int) -> None:
        """Return once a worker has an executor."""
        end = time.monotonic() + LONGEST
        while not self.list_executors(number):
            if time.monotonic() > end:
                raise RuntimeError(f"worker {number} has started no executor for {LONGEST:.0f} s:\n{self.read_logs()}")
            time.sleep(0.05)

    def read_logs(self) -> str:
        """Return the output of the master, the workers and the executors."""
        files = [*self._folder.glob("*.log"), *self._folder.glob("worker-*/app-*/*/std*")]
        return "\n".join(f"== {file.relative_to(self._folder)}\n{file.read_text(errors='replace')}" for file in files)

    def stop(self) -> None:
        """Stop all processes. The logs are kept, and the executors' files deleted."""
        for child in [*self._children, self._master]:
            if child is not None:
                child.end()
        for work in self._folder.glob("worker-*/"):
            shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def start_cluster(folder: Path, hidden: Sequence[Path], workers: int = 2) -> Iterator[Cluster]:
    """Start a cluster with its logs in this folder. Its workers see the hidden folders as empty."""
    cluster = Cluster(folder, hidden, workers)
    try:
        yield cluster
    finally:
        cluster.stop()


def say_why_not() -> str | None:
    """Return why a cluster cannot run here, or None if it can."""
    if sys.platform != "linux":
        return "a worker that cannot see the driver's folders needs Linux"
    missing = [each for each in ("unshare", "setpriv", "bash") if shutil.which(each) is None]
    if missing:
        return f"a cluster needs {', '.join(missing)} (Debian: apt-get install util-linux bash)"
    tried = subprocess.run(
        [*APART, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False, capture_output=True, text=True
    )
    return f"a worker's folders cannot be hidden here: {tried.stderr.strip()}" if tried.returncode else None


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests. Its workers cannot see the tests' folders, Wherry, or the JARs that Spark fetched for
    the driver.
    """
    why = say_why_not()
    if why:
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("cluster")
    with start_cluster(folder, list_hidden_folders(tmp_path_factory)) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Cluster:
    """The cluster with all its workers. Workers that an earlier test killed are started again."""
    shared_cluster.start_missing_workers()
    return shared_cluster


def list_hidden_folders(places: pytest.TempPathFactory) -> list[Path]:
    """Return the folders that other machines lack: the tests' folders, the JARs that Spark fetched for the driver, and
    Wherry.
    """
    packages = [Path(each.__path__[0]) for each in (origins, stages, destinations, runners)]
    return [places.getbasetemp().resolve(), FOLDER.resolve(), *packages]


def _find_spark_class() -> str:
    return str(_find_home() / "bin/spark-class")


def _find_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def _make_environment(scratch: Path, host: str = "127.0.0.1") -> dict[str, str]:
    return clean_environment(
        SPARK_HOME=str(_find_home()),
        SPARK_LOCAL_IP=host,
        SPARK_LOCAL_DIRS=str(scratch),
        SPARK_DAEMON_MEMORY="256m",
        SPARK_DAEMON_JAVA_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        PYSPARK_PYTHON=sys.executable,
    )


def _is_executor(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
