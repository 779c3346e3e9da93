"""HDFS on this machine: Hadoop's name node and data node in one process."""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from origins.spark_versions import find_parts
from tests.child import LONGEST, Child, clean_environment, run
from tests.maven import CACHE, copy_jars, fetch_once, skip_without

HADOOP = find_parts().hadoop
FOLDER = CACHE / f"hadoop-{HADOOP}"
_JARS = (
    f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP}",
    "org.junit.jupiter:junit-jupiter-api:5.13.4",  # Hadoop starts its small cluster with classes of its tests
    "org.opentest4j:opentest4j:1.3.0",
    "org.junit.platform:junit-platform-commons:1.13.4",
    "org.bouncycastle:bcprov-jdk18on:1.82",  # the resource manager needs it for signatures
    "org.bouncycastle:bcpkix-jdk18on:1.78.1",
    "org.bouncycastle:bcutil-jdk18on:1.78.1",
)
"""The JARs that Spark does not include."""


@dataclass(frozen=True)
class Hdfs:
    """A folder for one test."""

    root: str
    """The URL of the name node."""
    folder: str

    def make_url(self, key: str = "") -> str:
        """Return the URL of a file or a folder."""
        return f"{self.root}/{self.folder}/{key}"

    def put(self, folder: Path) -> None:
        """Copy a folder of this machine into the folder."""
        for words in (("-mkdir", "-p", self.make_url()), ("-put", str(folder), self.make_url())):
            with tempfile.TemporaryDirectory() as settings:
                Path(settings, "core-site.xml").write_text("<configuration/>")
                shell = "org.apache.hadoop.fs.FsShell"
                command = make_command(shell, *words, option="-Xss1m", settings=Path(settings))
                done = run(command, clean_environment())
                assert done.returncode == 0, done.stderr


def fetch() -> None:
    """Fetch missing JARs. Raises `RuntimeError` if that fails."""
    with fetch_once(FOLDER) as missing:
        if missing:
            copy_jars(FOLDER, "servers", _JARS, alone=True)


def make_command(main: str, *words: str, option: str, settings: Path | None = None) -> list[str]:
    """Return the command of one of Hadoop's servers. `option` is for the JVM. `settings` is a folder with Hadoop's
    files.
    """
    import pyspark

    classes = f"{settings or ''}:{FOLDER}/servers/*:{Path(pyspark.__file__).parent}/jars/*"
    return ["java", "-Xmx300m", option, "-cp", classes.strip(":"), main, *words]


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One HDFS for all tests, as the URL of its name node."""
    skip_without("HDFS", FOLDER)
    fetch()
    folder = tmp_path_factory.mktemp("hdfs")
    details = folder / "details.json"
    words = ("-format", "-nnport", "0", "-writeDetails", str(details))
    server = Child(
        make_command(
            "org.apache.hadoop.test.MiniDFSClusterManager", *words, option=f"-Dtest.build.data={folder / 'data'}"
        ),
        folder / "hdfs.log",
        clean_environment(),
    )
    yield f"hdfs://127.0.0.1:{_wait_for_port(server, details)}"
    server.end()


@pytest.fixture
def hdfs(hdfs_server: str) -> Hdfs:
    """An empty folder for one test."""
    return Hdfs(hdfs_server, uuid.uuid4().hex[:12])


def _wait_for_port(server: Child, details: Path) -> int:
    end = time.monotonic() + LONGEST
    while server.is_alive() and time.monotonic() < end:
        text = details.read_text() if details.exists() else ""
        if text.endswith("}"):
            return int(json.loads(text)["namenode_port"])
        time.sleep(0.05)
    server.end()
    raise RuntimeError(f"HDFS does not start:\n{server.read_log()}")
