"""A Spark Connect server that goes away, with the real errors of its client. A socket stands in for the server."""

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
    """Return the port of a server that closes every connection."""
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
    """Return the error of a client that does not retry, when the server closes the connection."""
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession(f"sc://127.0.0.1:{server}")
    session.client.set_retry_policies([])
    with pytest.raises(Exception, match="UNAVAILABLE") as error:
        session.range(1).count()
    session.client.close()
    return error.value


@pytest.mark.promise("SS-23")
def test_a_batch_waits_for_a_server_that_went_away(gone: Exception) -> None:
    """The batch rests.

    Before it is tried again, its destination is asked with a fence, as the end of its write is unknown.
    """
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


def test_the_error_of_a_missing_server_is_one_line(gone: Exception) -> None:
    """It has the status and what the client found. The other lines are for developers of the client."""
    said = summarise_error(gone)
    assert said.startswith("UNAVAILABLE: ")
    assert "\n" not in said
    assert "debug_error_string" not in said


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the port in SPARK_REMOTE, at which no server listens. This process has no Spark."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setattr("runners.spark.session._QUICKLY", (0, 1))
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setattr("pyspark.sql.SparkSession._instantiatedSession", None)
    monkeypatch.setattr("pyspark.sql.connect.session.SparkSession._default_session", None)
    monkeypatch.setattr("pyspark.sql.connect.session.SparkSession._active_session", threading.local())
    monkeypatch.setenv("SPARK_REMOTE", f"sc://127.0.0.1:{port}")
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # the builder sets it permanently
    return int(port)


def test_a_run_reports_within_seconds_that_its_server_does_not_answer(away: int) -> None:
    """The error has a hint. A run does not wait ten minutes for a server before it has begun."""
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


def test_a_run_asks_its_server_even_if_no_rows_are_new(
    tmp_path: Path, away: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the server knows its time and which disk it sees. A run without its server changes nothing."""
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
