"""Figures of runs in the format of Prometheus, computed from events. Readers delay no run."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from origins.capabilities import Lag
from runners.model.clock import Clock
from runners.model.errors import Refusal
from runners.model.events import (
    BatchCancelled,
    BatchPlanned,
    BatchRests,
    BatchResumed,
    BatchSettled,
    Event,
    LimitExceeded,
    Listener,
    Noticed,
)
from runners.model.schedule_events import Began, Broken, Draining, Ended, LeftOut, Mended, ScheduleEvent

METRICS: Mapping[str, tuple[str, str]] = {
    "wherry_batches_total": ("counter", "Batches that were settled at every destination."),
    "wherry_batches_in_flight": ("gauge", "Batches that are planned and not yet settled."),
    "wherry_batches_retried_total": ("counter", "How often a batch failed and was scheduled for a retry."),
    "wherry_batches_cancelled_total": ("counter", "Batches that were cancelled before they delivered anything."),
    "wherry_batch_seconds_total": ("counter", "Seconds that batches spent in each phase."),
    "wherry_rows_read_total": ("counter", "Rows that were read."),
    "wherry_rows_delivered_total": ("counter", "Rows that a destination took."),
    "wherry_rows_filtered_total": ("counter", "Rows that were filtered on the way to a destination."),
    "wherry_rows_refused_total": ("counter", "Rows that were refused, by stage."),
    "wherry_rows_discarded_total": ("counter", "Refused rows that were thrown away on purpose."),
    "wherry_dlq_rows_total": ("counter", "Rows that went to the DLQ."),
    "wherry_dlq_bytes_total": ("counter", "Bytes that were written to the DLQ."),
    "wherry_dlq_seconds_total": ("counter", "Seconds by which the DLQ took longer than the destinations."),
    "wherry_fallback_rows_total": ("counter", "Refused rows that went to the fallback, since the DLQ failed."),
    "wherry_unbalanced_batches_total": ("counter", "Batches whose row counts do not add up or are unknown."),
    "wherry_lag_rows": ("gauge", "Rows that wait in a lane, of origins that know it without Spark."),
    "wherry_lag_seconds": ("gauge", "How long ago the oldest of these rows was made, by the clock of its maker."),
    "wherry_limits_exceeded_total": ("counter", "Batches that exceeded a limit of the DLQ and were delivered."),
    "wherry_notices_total": ("counter", "Notices about origins and stages."),
    "wherry_runs_total": ("counter", "Runs that ended, by status."),
    "wherry_run_seconds_total": ("counter", "Seconds that runs took."),
    "wherry_run_under_way": ("gauge", "1 while a run is under way."),
    "wherry_last_run_timestamp_seconds": ("gauge", "When the last run with this status ended."),
    "wherry_runs_left_out_total": ("counter", "Runs that were due and were skipped."),
    "wherry_definitions_broken": ("gauge", "Definitions in the folder that cannot be used."),
}
"""The type and the meaning of every metric."""

_FRESH = 15.0
"""For how many seconds a lag is shown before it is measured again."""
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """The figures of one process. Any number of threads may use it. A figure costs a lock and an addition."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.ready = False
        """Whether runs begin: Spark has started, and the scheduler is not stopping."""
        self._lock = threading.Lock()
        self._figures: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._broken: set[str] = set()
        self._lags: dict[str, Callable[[], Mapping[str, Lag]]] = {}
        self._measured = -_FRESH

    def watch_lag(self, pipeline: str, measure: Callable[[], Mapping[str, Lag]]) -> None:
        """Also show what waits in the lanes of a pipeline.

        `measure` is called when a reader asks for figures, and at most four times a minute.
        """
        with self._lock:
            self._lags[pipeline] = measure

    def of(self, pipeline: str) -> Listener:
        """Return a listener for the runs of a pipeline."""

        def listener(event: Event) -> None:
            with self._lock:
                self._note_event(pipeline, event)

        return listener

    def __call__(self, event: ScheduleEvent) -> None:
        """Record an event of a scheduler."""
        with self._lock:
            self._note_scheduled(event)

    def text(self) -> str:
        """Return all figures in the format of Prometheus."""
        self._measure_lags()
        with self._lock:
            figures = {name: dict(self._figures.get(name, {})) for name in METRICS}
        return "".join(line for name, values in figures.items() for line in _format_lines(name, values))

    def readiness(self) -> tuple[int, str]:
        """Return the answer over HTTP to the question whether runs begin."""
        return (200, "ready\n") if self.ready else (503, "not ready: the scheduler is starting or stopping\n")

    def _measure_lags(self) -> None:
        """Measure what waits, without holding the lock, because brokers may take a while."""
        with self._lock:
            due = self.clock.elapsed() - self._measured >= _FRESH
            self._measured = self.clock.elapsed() if due else self._measured
            asked = dict(self._lags) if due else {}
        for pipeline, measure in asked.items():
            lags = measure()
            with self._lock:
                for name in ("wherry_lag_rows", "wherry_lag_seconds"):
                    figures = self._figures[name]
                    for labels in [each for each in figures if ("pipeline", pipeline) in each]:
                        del figures[labels]
                for lane, lag in lags.items():
                    self._set("wherry_lag_rows", lag.rows, pipeline=pipeline, lane=lane)
                    if lag.seconds is not None:
                        self._set("wherry_lag_seconds", lag.seconds, pipeline=pipeline, lane=lane)

    def _note_event(self, pipeline: str, event: Event) -> None:
        if isinstance(event, BatchSettled):
            if not event.owed:
                self._note_settled(pipeline, event)
        elif isinstance(event, BatchPlanned | BatchResumed):
            self._add("wherry_batches_in_flight", 1, pipeline=pipeline)
        elif isinstance(event, BatchCancelled):
            self._add("wherry_batches_in_flight", -1, pipeline=pipeline)
            self._add("wherry_batches_cancelled_total", 1, pipeline=pipeline, lane=event.batch.lane)
        elif isinstance(event, BatchRests):
            self._add("wherry_batches_retried_total", 1, pipeline=pipeline, lane=event.batch.lane)
        elif isinstance(event, LimitExceeded):
            self._add("wherry_limits_exceeded_total", 1, pipeline=pipeline, limit=event.limit)
        elif isinstance(event, Noticed):
            self._add("wherry_notices_total", 1, pipeline=pipeline)

    def _note_settled(self, pipeline: str, event: BatchSettled) -> None:
        counts, lane = event.counts, event.batch.lane
        self._add("wherry_batches_in_flight", -1, pipeline=pipeline)
        self._add("wherry_batches_total", 1, pipeline=pipeline, lane=lane)
        self._add("wherry_rows_read_total", counts.read, pipeline=pipeline, lane=lane)
        for name, rows in counts.delivered.items():
            self._add("wherry_rows_delivered_total", rows or 0, pipeline=pipeline, destination=name)
            filtered = counts.branches[name].filtered
            self._add("wherry_rows_filtered_total", filtered, pipeline=pipeline, destination=name)
        refused = {each.stage: each.nacked for each in counts.stages if each.nacked}
        unread = counts.nacked - sum(refused.values())
        for stage, rows in {**refused, **({"origin": unread} if unread > 0 else {})}.items():
            self._add("wherry_rows_refused_total", rows, pipeline=pipeline, stage=stage)
        self._add("wherry_rows_discarded_total", counts.discarded, pipeline=pipeline)
        self._add("wherry_dlq_rows_total", counts.nacked - counts.discarded - counts.fallback, pipeline=pipeline)
        self._add("wherry_fallback_rows_total", counts.fallback, pipeline=pipeline)
        self._add("wherry_dlq_bytes_total", counts.dlq_bytes or 0, pipeline=pipeline)
        self._add("wherry_dlq_seconds_total", event.seconds.get("dlq", 0.0), pipeline=pipeline)
        if counts.balanced is not True:
            self._add("wherry_unbalanced_batches_total", 1, pipeline=pipeline)
        for phase, seconds in event.seconds.items():
            self._add("wherry_batch_seconds_total", seconds, pipeline=pipeline, phase=phase)

    def _note_scheduled(self, event: ScheduleEvent) -> None:
        if isinstance(event, Began):
            self._set("wherry_run_under_way", 1, pipeline=event.name)
        elif isinstance(event, Ended):
            self._set("wherry_run_under_way", 0, pipeline=event.name)
            self._set("wherry_batches_in_flight", 0, pipeline=event.name)
            self._add("wherry_runs_total", 1, pipeline=event.name, status=event.status)
            self._add("wherry_run_seconds_total", event.seconds, pipeline=event.name)
            now = self.clock.now().timestamp()
            self._set("wherry_last_run_timestamp_seconds", now, pipeline=event.name, status=event.status)
        elif isinstance(event, LeftOut):
            self._add("wherry_runs_left_out_total", len(event.due), pipeline=event.name)
        elif isinstance(event, Broken | Mended):
            (self._broken.add if isinstance(event, Broken) else self._broken.discard)(event.file)
            self._set("wherry_definitions_broken", len(self._broken))
        elif isinstance(event, Draining):
            self.ready = False

    def _add(self, name: str, by: float, **labels: str) -> None:
        self._figures[name][tuple(labels.items())] += by

    def _set(self, name: str, value: float, **labels: str) -> None:
        self._figures[name][tuple(labels.items())] = value


def _format_lines(name: str, values: Mapping[Labels, float]) -> Iterator[str]:
    kind, meaning = METRICS[name]
    yield f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n"
    for labels, value in sorted(values.items()):
        inside = ",".join(f'{label}="{str(text).translate(_ESCAPED)}"' for label, text in labels)
        yield f"{name}{{{inside}}} {_format_number(value)}\n" if inside else f"{name} {_format_number(value)}\n"


def _format_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(round(value, 6))


Answer = tuple[int, str]
"""An HTTP status, and its text."""
SLOWEST = 10.0
"""After how many seconds of silence a connection is closed."""


class MetricsServer:
    """Serves the pages inside its `with` block. Each request makes a new page."""

    def __init__(self, pages: Mapping[str, Callable[[], Answer]], *, host: str, port: int) -> None:
        """Open the port. Raises `Refusal` if that is not possible."""
        try:
            self._server = _Server((host, port), _make_handler(pages))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise Refusal(
                f"Metrics cannot be served at {host}:{port}: {why}.",
                hint="Choose another port with --metrics-port, or end the program that uses this port.",
            ) from error
        self.port = int(self._server.server_address[1])
        """The port that the server uses, which the system chose if `port` was 0."""

    def __enter__(self) -> MetricsServer:
        threading.Thread(target=self._server.serve_forever, name="wherry-metrics", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        """Ignore readers that close the connection early."""


def _make_handler(pages: Mapping[str, Callable[[], Answer]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SLOWEST

        def do_GET(self) -> None:
            make = pages.get(self.path.partition("?")[0])
            status, text = make() if make else (404, f"There are: {', '.join(pages)}\n")
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log no requests."""

    return Handler
