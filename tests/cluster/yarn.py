"""YARN on this machine: a resource manager and a node manager. Its containers cannot see the tests' folders and
Wherry.
"""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from tests.child import LONGEST, Child, clean_environment, find_free_ports
from tests.cluster.cluster import APART, HIDE, list_hidden_folders, say_why_not
from tests.stores.hdfs import make_command

_RESOURCES = ("", ".scheduler", ".resource-tracker", ".admin", ".webapp")
"""The parts of the setting names for the resource manager's addresses."""
_NODE = ("", ".localizer", ".webapp")
_SCHEDULER = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "0.9",
}


@dataclass(frozen=True)
class Yarn:
    """A cluster of one node."""

    conf: Path
    """The folder of its settings, for `HADOOP_CONF_DIR`."""
    logs: Path
    """The folder with the output of its containers."""

    def read_logs(self) -> str:
        """Return the output of all containers."""
        files = sorted(self.logs.glob("application_*/container_*/std*"))
        return "\n".join(f"== {file.relative_to(self.logs)}\n{file.read_text(errors='replace')}" for file in files)


@pytest.fixture(scope="session")
def yarn(hdfs_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yarn]:
    """One YARN for all tests, with the HDFS of the tests as file system."""
    why = say_why_not()
    if why:
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("yarn")
    conf, work = folder / "conf", folder / "node"
    conf.mkdir()
    work.mkdir()
    ports = find_free_ports(len(_RESOURCES))
    doors = {
        f"yarn.resourcemanager{name}.address": f"127.0.0.1:{port}" for name, port in zip(_RESOURCES, ports, strict=True)
    }
    node = {
        "yarn.nodemanager.resource.memory-mb": "8192",
        "yarn.nodemanager.resource.cpu-vcores": "8",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.pmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99.5",
        "yarn.nodemanager.env-whitelist": "JAVA_HOME,PATH,SPARK_LOCAL_IP",
        "yarn.nodemanager.local-dirs": str(work / "local"),
        "yarn.nodemanager.log-dirs": str(work / "logs"),
        "yarn.nodemanager.delete.debug-delay-sec": "3600",  # keeps the logs
        "yarn.scheduler.minimum-allocation-mb": "128",
        **{f"yarn.nodemanager{name}.address": "127.0.0.1:0" for name in _NODE},
    }
    _write(conf / "core-site.xml", {"fs.defaultFS": hdfs_server, "hadoop.tmp.dir": str(work / "tmp")})
    _write(conf / "yarn-site.xml", {**doors, **node})
    _write(conf / "capacity-scheduler.xml", _SCHEDULER)
    packages = "org.apache.hadoop.yarn.server"
    option = f"-Dhadoop.log.dir={folder}"
    environment = clean_environment(HADOOP_CONF_DIR=str(conf), SPARK_LOCAL_IP="127.0.0.1")
    with contextlib.ExitStack() as ending:
        manager = make_command(f"{packages}.resourcemanager.ResourceManager", option=option, settings=conf)
        resources = Child(manager, folder / "resources.log", environment)
        ending.callback(resources.end)
        hide = ["bash", "-c", HIDE, "hide", str(work), *map(str, list_hidden_folders(tmp_path_factory)), "--"]
        manager = make_command(f"{packages}.nodemanager.NodeManager", option=option, settings=work / "conf")
        (work / "conf").mkdir()
        for file in conf.iterdir():
            (work / "conf" / file.name).write_text(file.read_text())
        nodes = Child([*APART, *hide, *manager], folder / "node.log", environment)
        ending.callback(nodes.end)
        _wait_for_node(ports[-1], resources, nodes)
        yield Yarn(conf, work / "logs")


def _wait_for_node(port: int, *servers: Child) -> None:
    """Return once the resource manager has a node."""
    end = time.monotonic() + LONGEST
    while time.monotonic() < end and all(each.is_alive() for each in servers):
        with contextlib.suppress(OSError):
            url = f"http://127.0.0.1:{port}/ws/v1/cluster/metrics"
            with urllib.request.urlopen(url, timeout=30) as answer:
                if json.load(answer)["clusterMetrics"]["activeNodes"]:
                    return
        time.sleep(0.2)
    raise RuntimeError("YARN does not start:\n" + "\n".join(each.read_log() for each in servers))


def _write(file: Path, settings: Mapping[str, str]) -> None:
    lines = [
        f"<property><name>{name}</name><value>{escape(text)}</value></property>" for name, text in settings.items()
    ]
    file.write_text(f"<configuration>{''.join(lines)}</configuration>")
