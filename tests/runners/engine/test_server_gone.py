"""A Spark Connect server that goes away, in the words of its client; nothing but a socket stands for it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.model.error_kinds import classify
from runners.model.tasks import AskDestinations
from runners.model.text import summarise_error
from runners.pipeline import Pipeline
from runners.spark.session import obtain
from runners.spark.start import SparkMissing
from tests.runners.engine.test_dispatcher import Resting


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a server that hangs up on everybody."""
    listening = socket.create_server(("127.0.0.1", 0))

    def hang_up() -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = listening.accept()
                with caller:
                    caller.recv(100)

    thread = threading.Thread(target=hang_up, daemon=True)
    thread.start()
    yield int(listening.getsockname()[1])
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


@pytest.fixture
def gone(server: int) -> Exception:
    """What the client says when the server hangs up, with no patience of its own."""
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession(f"sc://127.0.0.1:{server}")
    session.client.set_retry_policies([])
    with pytest.raises(Exception, match="UNAVAILABLE") as error:
        session.range(1).count()
    session.client.close()
    return error.value


@pytest.mark.promise("SS-23")
def test_a_server_that_went_away_is_waited_for(gone: Exception) -> None:
    """The batch rests; before it goes again it is asked for, with a fence: nobody said how its write ended."""
    assert classify(gone).transient == "a server is down, restarting or too busy"
    assert classify(gone).is_outcome_unknown
    bench = Resting()
    bench.error = gone
    bench.turn()
    assert bench.turn("0")
    assert bench.dispatcher.errors == []
    bench.move(1)
    bench.turn()
    task = bench.tasks[-1]
    assert isinstance(task, AskDestinations)
    assert (task.ours, task.ended) == (True, False)


def test_a_server_that_is_away_is_told_in_one_line(gone: Exception) -> None:
    """By the status and what the client found; the rest of its lines is for its makers."""
    said = summarise_error(gone)
    assert said.startswith("UNAVAILABLE: ")
    assert "\n" not in said
    assert "debug_error_string" not in said


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> int:
    """The port that SPARK_REMOTE names, at which no server is; this process has no Spark."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setattr("runners.spark.session._QUICKLY", (0, 1))
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setattr("pyspark.sql.SparkSession._instantiatedSession", None)
    monkeypatch.setattr("pyspark.sql.connect.session.SparkSession._default_session", None)
    monkeypatch.setattr("pyspark.sql.connect.session.SparkSession._active_session", threading.local())
    monkeypatch.setenv("SPARK_REMOTE", f"sc://127.0.0.1:{port}")
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # the builder sets it for good
    return int(port)


def test_a_server_that_is_not_there_when_a_run_begins_is_told_within_seconds(away: int) -> None:
    """With what to look at; a run asks nobody for ten minutes before it has begun."""
    with pytest.raises(SparkMissing, match=f"does not answer: UNAVAILABLE: .*:{away}") as told:
        obtain()
    assert "Check the address" in told.value.hint


DEFINITION = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long"}
destinations:
  - delta: {path: tables/orders}
"""


def test_a_run_asks_its_server_also_where_nothing_is_new(
    tmp_path: Path, away: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server alone tells what time it is there and whose disk it sees. A run without it changes nothing."""
    (tmp_path / "pipeline.yaml").write_text(DEFINITION)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "1.json").write_text('{"id": 1}\n')
    with monkeypatch.context() as here:
        here.delenv("SPARK_REMOTE")
        first = Pipeline.load(tmp_path / "pipeline.yaml").run()
    with pytest.raises(SparkMissing, match="does not answer"):
        Pipeline.load(tmp_path / "pipeline.yaml").run()
    monkeypatch.delenv("SPARK_REMOTE")
    last = Pipeline.load(tmp_path / "pipeline.yaml").run()
    assert (first.batches, last.reason, last.left_open) == (1, "nothing left to do", 0)
