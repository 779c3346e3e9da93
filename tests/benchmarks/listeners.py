"""Measure the cost of listeners: small batches without any listener, and with every kind of listener.

The batches pass a stage, so that Spark processes them. Batches without Spark take only a few times as long as the
reports to the listeners.
"""

from __future__ import annotations

import logging
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from runners.listeners.log_lines import JsonLines, LogLines
from runners.listeners.metrics import Metrics
from runners.listeners.run_progress import RunProgress, call_every
from runners.model.clock import Clock
from runners.model.events import Listener
from tests.benchmarks.carried import carry_batches, define
from tests.benchmarks.case import Bar, Case, Taken, measure_in_turns, open_session
from tests.benchmarks.landing import SCHEMA, land

BATCHES = 4
"""The batches of a run. The times of the first and the last one also include the work of the run before and after
them."""
ALONE, HEARD = "nobody listens", "everybody listens"
STAGE = 'stages: [filter: "id >= 0"]\n'
HOOKS = """hooks:
  - {{on: [start, success], command: ["true"]}}
  - {{on: [start, success], webhook: "{address}"}}
  - {{on: [start, success], python: "told:of"}}
"""


def measure_listeners(place: Path, turns: int) -> Taken:
    """Measure pairs of runs, one of each kind: the median time of its batches, and the time of the whole run."""
    open_session()
    whole: dict[str, list[float]] = {ALONE: [], HEARD: []}

    def run(where: Path, turn: int, name: str, options: str, told: Sequence[Listener]) -> Iterator[float]:
        land(where / "landing", BATCHES, first=turn * BATCHES)
        origin = f'origin: {{files: {{path: "landing/*.json", format: json, schema: "{SCHEMA}"}}}}\n'
        file = define(where, f"{origin}{STAGE}destinations: [delta: {{path: tables/orders}}]\n{options}")
        began = time.perf_counter()
        times = list(carry_batches(file, BATCHES, listeners=told))
        whole[name].append(time.perf_counter() - began)
        yield statistics.median(times[1:-1])

    def alone(where: Path, turn: int) -> Iterator[float]:
        yield from run(where, turn, ALONE, "run: {batch: {files: 1}, history: 0s}\n", ())

    def heard(where: Path, turn: int) -> Iterator[float]:
        (where / "told.py").write_text("def of(facts):\n    pass\n", encoding="utf-8")
        options = f"run: {{batch: {{files: 1}}}}\n{HOOKS.format(address=address)}"
        with _make_listeners() as told:
            yield from run(where, turn, HEARD, options, told)

    with _serve_answers() as address:
        taken = measure_in_turns({ALONE: alone, HEARD: heard}, place, turns)
    return {**taken, **_pick_whole_runs(whole, turns)}


def _pick_whole_runs(whole: Mapping[str, list[float]], turns: int) -> Taken:
    return {f"the whole run, {name}": times[-turns:] for name, times in whole.items()}


@contextmanager
def _make_listeners() -> Iterator[Sequence[Listener]]:
    """Yield a line of progress, log lines in JSON, and metrics. The definition adds the history, the hooks and the
    report."""
    with ExitStack() as stack:
        nowhere = stack.enter_context(Path("/dev/null").open("w", encoding="utf-8"))
        lines = logging.StreamHandler(nowhere)
        lines.setFormatter(JsonLines())
        log = logging.getLogger("wherry")
        log.addHandler(lines)
        log.setLevel(logging.INFO)
        stack.callback(log.removeHandler, lines)
        progress = RunProgress("orders")
        stack.enter_context(call_every(0.25, lambda: print(progress.describe(), file=nowhere)))
        yield [progress, LogLines("json"), Metrics(Clock()).of("orders")]


@contextmanager
def _serve_answers() -> Iterator[str]:
    """Yield the address of a web server that answers at once."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log no request."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


CASES = (
    Case(
        name="listeners",
        says="1,000-row JSON files, one a batch, with all who can listen and with nobody, in alternating runs",
        measure=measure_listeners,
        turns=200,
        bars=(Bar(of=HEARD, to=ALONE, most=1.03),),
    ),
)
