"""A Spark that one command keeps is used by commands in other terminals."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.child import WHERRY, clean_environment, list_descendants

pytestmark = [pytest.mark.spark, pytest.mark.long]

DEFINITION = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, amount string"}
stages:
  - cast: {amount: "decimal(10,2)"}
  - python: {function: "tag:tag", columns: {place: string}}
destinations:
  - delta: {path: tables/orders}
dlq: {window: 0}
spark: {conf: {spark.sql.shuffle.partitions: "3"}}
"""

TAG = """
import os


def tag(rows):
    return [{"place": os.environ["PLACE"]} for _ in rows]
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with a pipeline and one file."""
    (tmp_path / "orders.yaml").write_text(DEFINITION)
    (tmp_path / "tag.py").write_text(TAG)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/1.json").write_text('{"id": 1, "amount": "2.50"}\n{"id": 2, "amount": "x"}\n')
    return tmp_path


def begin(folder: Path, *words: str, remote: str = "") -> subprocess.Popen[str]:
    """Start a command in a process of its own."""
    return subprocess.Popen(
        [*WHERRY, *words],
        cwd=folder,
        env=clean_environment(**({"SPARK_REMOTE": remote, "PLACE": "command"} if remote else {"PLACE": "keeper"})),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def keep_spark(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Give the command that keeps a Spark, and what `SPARK_REMOTE` must be for others."""
    keeper = begin(folder, "warm", "orders.yaml", "--json")
    try:
        assert keeper.stdout is not None
        told = json.loads("".join(iter(keeper.stdout.readline, "}\n")) + "}")
        yield keeper, str(told["spark_remote"])
    finally:
        keeper.kill()
        keeper.communicate()


def find_jvm(keeper: subprocess.Popen[str]) -> int:
    """Return the process number of the JVM that a command keeps."""
    (jvm,) = [each for each in list_descendants(keeper.pid) if Path(f"/proc/{each}/comm").read_text() == "java\n"]
    return jvm


def test_commands_use_the_spark_and_its_token(shop: Path) -> None:
    """Each command takes the definition's settings from it. Without the token it answers nothing."""
    with keep_spark(shop) as (keeper, remote):
        for read in (2, 0):
            carried = begin(shop, "run", "orders.yaml", "--json", remote=remote)
            said, told = carried.communicate(timeout=300)
            assert carried.returncode == 0, told
            report = json.loads(said)
            assert (report["read"], report["nacked"]) == (read, read // 2)
            assert "do not count" not in told
        assert DeltaTable(str(shop / "tables/orders")).to_pyarrow_table()["place"].to_pylist() == ["keeper"]
        stranger = begin(shop, "preview", "orders.yaml", remote=remote.replace("token=", "token=x"))
        said, told = stranger.communicate(timeout=300)
        assert stranger.returncode == 1
        assert "Invalid authentication token" in told
        keeper.send_signal(signal.SIGINT)
        assert keeper.wait(timeout=60) == 0


def test_a_second_spark_is_refused_where_there_is_one(shop: Path) -> None:
    """The command says how to start one nevertheless."""
    second = begin(shop, "warm", remote="sc://localhost:1")
    said, told = second.communicate(timeout=60)
    assert second.returncode == 1
    assert "unset SPARK_REMOTE" in told
    assert said == ""


def test_the_spark_ends_with_its_command(shop: Path) -> None:
    """No signal to the command leaves a JVM behind."""
    with keep_spark(shop) as (keeper, _):
        jvm = os.pidfd_open(find_jvm(keeper))
        keeper.kill()
        assert keeper.wait(timeout=60) == -signal.SIGKILL
        assert select.select([jvm], [], [], 10)[0] == [jvm]
        os.close(jvm)


def test_the_command_says_that_its_spark_was_killed(shop: Path) -> None:
    """It ends with 1."""
    with keep_spark(shop) as (keeper, _):
        os.kill(find_jvm(keeper), signal.SIGKILL)
        _, told = keeper.communicate(timeout=60)
        assert keeper.returncode == 1
        assert "The JVM of this Spark was killed by SIGKILL." in told
