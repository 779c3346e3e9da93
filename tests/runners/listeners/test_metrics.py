"""What Prometheus reads. No run waits for it."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from origins.capabilities import Lag
from origins.codec import decode
from runners.command_line import cli
from runners.listeners.metrics import METRICS, Metrics, MetricsServer
from runners.model.errors import Refusal
from runners.model.events import BatchCancelled, BatchPlanned, BatchRests, BatchSettled, Noticed
from runners.model.planned_batch import SettledCounts
from runners.model.schedule_events import Began, Broken, Draining, Ended, LeftOut, Mended
from tests.manual_clock import ManualClock
from tests.runners.command_line.test_carrying import make_batch

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
COUNTS: dict[str, Any] = {
    "read": 1_000,
    "nacked": 5,
    "discarded": 1,
    "balanced": True,
    "delivered": {"orders": 975, "copy": 995},
    "branches": {"orders": {"expected": 975, "filtered": 20}, "copy": {"expected": 995}},
    "stages": [{"stage": "cast", "in": 1_000, "out": 997, "nacked": 3}, {"stage": "filter", "in": 997, "out": 977}],
    "dlq_bytes": 2_048,
}


def make_settled(**other: Any) -> BatchSettled:
    counts = decode(SettledCounts, {**COUNTS, **other})
    return BatchSettled(batch=make_batch("0"), counts=counts, seconds={"write": 0.5, "dlq": 0.25})


def read_figures(metrics: Metrics) -> dict[str, float]:
    """Return every value by its name and labels."""
    lines = [line for line in metrics.text().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_a_batch_is_counted_by_the_outcomes_of_its_rows() -> None:
    """There are counts by lane, stage and destination. Counts of several batches are added."""
    metrics = Metrics(ManualClock())
    hear = metrics.of("orders")
    for event in (
        BatchPlanned(batch=make_batch("0")),
        BatchPlanned(batch=make_batch("1")),
        make_settled(),
        make_settled(),
    ):
        hear(event)
    found = read_figures(metrics)
    expected = {
        'wherry_batches_total{pipeline="orders",lane="0"}': 2,
        'wherry_rows_read_total{pipeline="orders",lane="0"}': 2_000,
        'wherry_rows_delivered_total{pipeline="orders",destination="orders"}': 1_950,
        'wherry_rows_filtered_total{pipeline="orders",destination="orders"}': 40,
        'wherry_rows_refused_total{pipeline="orders",stage="cast"}': 6,
        'wherry_rows_refused_total{pipeline="orders",stage="origin"}': 4,
        'wherry_rows_discarded_total{pipeline="orders"}': 2,
        'wherry_batch_seconds_total{pipeline="orders",phase="write"}': 1,
        'wherry_batches_in_flight{pipeline="orders"}': 0,
    }
    assert {name: found[name] for name in expected} == expected


@pytest.mark.promise("DQ-15")
def test_the_dead_letter_queue_has_separate_metrics() -> None:
    """They are rows, bytes and seconds. Discarded rows do not count, and a destination need not report bytes."""
    metrics = Metrics(ManualClock())
    for event in (
        make_settled(),
        make_settled(dlq_bytes=None),
        make_settled(nacked=0, discarded=0, stages=[], dlq_bytes=0),
    ):
        metrics.of("orders")(event)
    found = read_figures(metrics)
    assert found['wherry_dlq_rows_total{pipeline="orders"}'] == 8
    assert found['wherry_dlq_bytes_total{pipeline="orders"}'] == 2_048
    assert found['wherry_dlq_seconds_total{pipeline="orders"}'] == 0.75


def test_other_events_are_counted() -> None:
    """They are retries, cancelled batches, owed batches, unbalanced batches and notices."""
    metrics = Metrics(ManualClock())
    hear = metrics.of("orders")
    rest = BatchRests(batch=make_batch(), error=ValueError(), tried=1, seconds=1.0)
    owed = replace(make_settled(), owed=("copy",))
    for event in (BatchPlanned(batch=make_batch()), rest, rest, BatchCancelled(batch=make_batch()), owed):
        hear(event)
    hear(make_settled(balanced="unknown"))
    hear(Noticed(origin="files", message="odd"))
    found = read_figures(metrics)
    assert found['wherry_batches_retried_total{pipeline="orders",lane="0"}'] == 2
    assert found['wherry_batches_cancelled_total{pipeline="orders",lane="0"}'] == 1
    assert found['wherry_batches_total{pipeline="orders",lane="0"}'] == 1
    assert found['wherry_unbalanced_batches_total{pipeline="orders"}'] == 1
    assert found['wherry_notices_total{pipeline="orders"}'] == 1


def test_runs_are_counted_by_their_status() -> None:
    """There are also their seconds, their last end, skipped runs and broken files."""
    clock = ManualClock(time=NOON)
    metrics = Metrics(clock)
    metrics(Began(name="orders", due=NOON))
    assert read_figures(metrics)['wherry_run_under_way{pipeline="orders"}'] == 1
    metrics(Ended(name="orders", due=NOON, status="failed", message="", seconds=2.5))
    metrics(LeftOut(name="orders", due=[NOON, NOON], why="it runs"))
    for event in (Broken(file="a.yaml", message=""), Broken(file="b.yaml", message=""), Mended(file="a.yaml")):
        metrics(event)
    assert read_figures(metrics) == {
        'wherry_batches_in_flight{pipeline="orders"}': 0,
        'wherry_runs_total{pipeline="orders",status="failed"}': 1,
        'wherry_run_seconds_total{pipeline="orders"}': 2.5,
        'wherry_run_under_way{pipeline="orders"}': 0,
        'wherry_last_run_timestamp_seconds{pipeline="orders",status="failed"}': NOON.timestamp(),
        'wherry_runs_left_out_total{pipeline="orders"}': 2,
        "wherry_definitions_broken": 1,
    }


def test_the_lag_is_measured_when_metrics_are_read() -> None:
    """It is measured at most four times a minute. A lane that is gone has no lag."""
    clock, asked = ManualClock(), list[dict[str, Lag]]()
    metrics, waiting = Metrics(clock), {"0": Lag(rows=3, seconds=2.5), "1": Lag(rows=1)}

    def measure() -> dict[str, Lag]:
        asked.append(waiting)
        return waiting

    metrics.watch_lag("orders", measure)
    text = metrics.text()
    assert 'wherry_lag_rows{pipeline="orders",lane="0"} 3\n' in text
    assert 'wherry_lag_seconds{pipeline="orders",lane="0"} 2.5\n' in text
    assert 'wherry_lag_seconds{pipeline="orders",lane="1"}' not in text
    waiting = {}
    assert metrics.text() == text
    clock.wait(20)
    assert "wherry_lag_rows{pipeline" not in metrics.text()
    assert len(asked) == 2


def test_a_name_with_quotes_and_line_breaks_is_one_label() -> None:
    """It is escaped as Prometheus requires."""
    metrics = Metrics(ManualClock())
    metrics.of('a"b\\c\nd')(Noticed(origin="o", message=""))
    assert 'wherry_notices_total{pipeline="a\\"b\\\\c\\nd"} 1\n' in metrics.text()


def test_every_metric_has_a_description_and_is_in_the_reference() -> None:
    """Its type and a sentence come before its values. Counters end in `_total`."""
    text = Metrics(ManualClock()).text()
    page = (Path(__file__).parents[3] / "runners/docs/reference/hooks-and-metrics.md").read_text()
    for name, (kind, said) in METRICS.items():
        assert f"# HELP {name} {said}\n# TYPE {name} {kind}\n" in text
        assert (kind == "counter") == name.endswith("_total")
        assert f"`{name}`" in page


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    """Return a server with a page that answers and a page that never does."""
    hangs = threading.Event()

    def hang() -> tuple[int, str]:
        hangs.wait(60)
        return 200, ""

    pages = {"/metrics": lambda: (200, "wherry 1\n"), "/ready": lambda: (503, "no\n"), "/hang": hang}
    with MetricsServer(pages, host="127.0.0.1", port=0) as server:
        yield server
        hangs.set()


def ask_server(server: MetricsServer, page: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{page}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_pages_are_served_while_another_hangs(server: MetricsServer) -> None:
    """Each page has its status. An unknown page lists the known pages."""
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(b"GET /hang HTTP/1.0\r\n\r\n")
        assert ask_server(server, "/metrics?x=1") == (200, "wherry 1\n")
        assert ask_server(server, "/ready") == (503, "no\n")
        assert ask_server(server, "/x") == (404, "There are: /metrics, /ready, /hang\n")


def test_a_port_in_use_is_refused_with_a_hint(server: MetricsServer, tmp_path: Path, capsys: Any) -> None:
    """This happens before anything is started."""
    with pytest.raises(Refusal, match=f"cannot be served at 127.0.0.1:{server.port}: Address already in use"):
        MetricsServer({}, host="127.0.0.1", port=server.port)
    definition = "name: numbers\norigin: {generate: {rows: 1}}\ndestinations: [discard: {}]\nschedule: {every: 5m}\n"
    (tmp_path / "numbers.yaml").write_text(definition, encoding="utf-8")
    assert cli.execute(["schedule", str(tmp_path), "--metrics-port", str(server.port)]) == 2
    assert "Choose another port with --metrics-port" in capsys.readouterr().err


@pytest.mark.promise("HP-11")
def test_readiness_can_be_read() -> None:
    """A scheduler is not ready before Spark has started, and after a request to end."""
    metrics = Metrics(ManualClock())
    assert metrics.readiness()[0] == 503
    metrics.ready = True
    assert metrics.readiness() == (200, "ready\n")
    metrics(Draining(reason="signal SIGTERM"))
    assert metrics.readiness()[0] == 503
