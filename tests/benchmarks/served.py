"""Measure how long a server lets callers wait: 50 of them read, with 200 pipelines, while runs work.

    python -m tests.benchmarks --into FOLDER --case served
    python -m tests.benchmarks --into FOLDER --case served_refused

The server is a process of its own. Another process runs ten of the pipelines again and again. Each caller asks about
one pipeline, once a second, as a page does. The first answer about a pipeline is not timed.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from runners.pipeline import Pipeline
from runners.service.serving import open_tokens
from tests.benchmarks.case import Bar, Case, Taken
from tests.benchmarks.refused import make_dlq

PIPELINES, CALLERS, PAUSE = 200, 50, 1.0
DEFINITION = """
name: p{number:03}
origin: {{files: {{path: "landing/{number}/*.json", format: json, schema: "id long, amount long"}}}}
destinations: [{{delta: {{path: tables/{number}}}}}]
run: {{batch: {{files: 1}}, runners: 1}}
"""
PATHS = {
    "list_pipelines": "/v1/pipelines",
    "get_pipeline": "/v1/pipelines/p{number:03}",
    "list_runs": "/v1/pipelines/p{number:03}/runs",
    "list_causes": "/v1/pipelines/p{number:03}/dlq/causes",
}
RUNS = """
import itertools, json, sys
from pathlib import Path
from runners.pipeline import Pipeline
for turn in itertools.count():
    number = turn % 10
    (Path("landing") / str(number) / f"{turn + 1}.json").write_text(json.dumps({"id": turn, "amount": 1}) + "\\n")
    Pipeline.load(f"p{number:03}.yaml").run()
    print(turn, flush=True)
"""


def measure_readers(place: Path, turns: int) -> Taken:
    """Return the median and the 99th percentile of each operation, and how many runs there were."""
    for number in range(PIPELINES):
        landing = place / "landing" / str(number)
        landing.mkdir(parents=True)
        (landing / "0.json").write_text(json.dumps({"id": 1, "amount": 1}) + "\n")
        (place / f"p{number:03}.yaml").write_text(DEFINITION.format(number=number))
        Pipeline.load(place / f"p{number:03}.yaml").run()
    tokens = [open_tokens(place).add(f"caller {number}", "read") for number in range(CALLERS)]
    taken: dict[str, list[float]] = {name: [] for name in PATHS}
    with (
        start_server(place) as port,
        subprocess.Popen([sys.executable, "-c", RUNS], cwd=place, stdout=subprocess.PIPE, text=True) as runs,
    ):
        readers = [
            threading.Thread(target=read_often, args=(port, token, number, 10 * turns, taken))
            for number, token in enumerate(tokens)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        runs.terminate()
        assert runs.stdout is not None
        print(f"{len(runs.stdout.readlines())} runs meanwhile", flush=True)  # noqa: T201
    figures: dict[str, list[float]] = {}
    for name, seconds in taken.items():
        figures[f"`{name}`"] = seconds
        figures[_name_slowest(name)] = [statistics.quantiles(seconds, n=100)[98]]
    return figures


def _name_slowest(name: str) -> str:
    return f"`{name}`, the slowest of a hundred"


def read_often(port: int, token: str, number: int, times: int, taken: dict[str, list[float]]) -> None:
    """Ask each operation in turn, with a pause after each answer. Note the seconds of each answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    time.sleep(PAUSE * number / CALLERS)
    for turn, (name, path) in enumerate(itertools.islice(itertools.cycle(PATHS.items()), 4 + times)):
        asked = path.format(number=number * PIPELINES // CALLERS)
        began = time.perf_counter()
        connection.request("GET", asked, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"{asked}: {answer.status}")
        if turn >= len(PATHS):
            taken[name].append(time.perf_counter() - began)
        time.sleep(PAUSE)
    connection.close()


@contextlib.contextmanager
def start_server(folder: Path) -> Iterator[int]:
    """Serve a folder in another process. Yield the port."""
    main = "from runners.command_line.cli import main; main()"
    command = [sys.executable, "-c", main, "serve", str(folder), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = "".join(itertools.takewhile(lambda line: line != "}\n", process.stdout)) + "}"
        try:
            yield int(urlsplit(json.loads(text)["address"]).port or 0)
        finally:
            process.terminate()


def measure_refused(place: Path, turns: int) -> Taken:
    """Measure the page of a pipeline with 1,000,000 refused rows: its newest rows, and all causes.

    Each turn asks a new server, which has kept no answer.
    """
    make_dlq(place, files=10)
    token = open_tokens(place).add("caller", "read")
    taken: dict[str, list[float]] = {_ROWS: [], _CAUSES: [], _PAGE: []}
    for _ in range(turns):
        with start_server(place) as port:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            seconds = []
            for path in ("dlq/rows?limit=100", "dlq/causes"):
                began = time.perf_counter()
                connection.request("GET", f"/v1/pipelines/orders/{path}", headers={"Authorization": f"Bearer {token}"})
                answer = connection.getresponse()
                found = json.loads(answer.read())
                seconds.append(time.perf_counter() - began)
                if answer.status != http.HTTPStatus.OK or not found:
                    raise RuntimeError(f"{path}: {answer.status} {found}")
            print(sum(each["rows"] for each in found["causes"]), "rows in the causes", flush=True)  # noqa: T201
            for name, each in zip(taken, (*seconds, sum(seconds)), strict=True):
                taken[name].append(each)
    return taken


_ROWS, _CAUSES = "the newest 100 rows of 1,000,000", "the causes of 1,000,000 rows"
_PAGE = "both, one after the other"

CASES = (
    Case(
        name="served",
        says=f"an answer to one of {CALLERS} callers, with {PIPELINES} pipelines, while runs work",
        measure=measure_readers,
        bars=[Bar(of=_name_slowest(name), most=0.1) for name in PATHS],
    ),
    Case(
        name="served_refused",
        says="the page of a pipeline with 1,000,000 refused rows",
        measure=measure_refused,
        bars=[Bar(of=_PAGE, most=2.0)],
    ),
)
