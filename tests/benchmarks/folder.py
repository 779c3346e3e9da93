"""Measure the costs of a folder: to list it, to run when it has no new files, and to scan large files while they are
read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

from origins.batch import Limits
from origins.files import Files, csv_rows
from origins.files import formats as file_rows
from origins.files.listing import parse_pattern
from origins.origin import Progress
from runners.pipeline import Pipeline
from tests.benchmarks.carried import carry_batches, define
from tests.benchmarks.case import Bar, Case, Taken, Way, measure_in_turns, open_session
from tests.benchmarks.landing import SCHEMA, land
from tests.origins.files.test_files import make_batch

MANY, FILES, LINES = 100_000, 2_000, 1_000_000
SYSTEM, OURS = "os.scandir with stat", "a listing in order"
RUN = "a run with nothing new"
PLAIN, QUOTES = "fields of CSV", "and open quotes"
_LOOKS = ((csv_rows, "are_quotes_closed"), (file_rows, "are_all_plain"))
JSON, LETTERS, KEYS = "JSON", "and more on a line, and letters of keys", "and other keys"


def measure_listing(place: Path, turns: int) -> Taken:
    """Measure seconds of processor time. The first requests to a disk would delay either way."""
    folder = place / "landing"
    folder.mkdir(parents=True)
    for number in range(MANY):
        (folder / f"{number:06}.json").touch()

    def system() -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                entry.stat()

    def way(does: Callable[[], object]) -> Way:
        def spent(_: Path, __: int) -> Iterator[float]:
            began = time.process_time()
            does()
            yield time.process_time() - began

        return spent

    nobody = mock.Mock()  # Spark is not used for folders of this machine
    return measure_in_turns(
        {SYSTEM: way(system), OURS: way(lambda: parse_pattern(str(folder)).list_files(nobody))}, place, turns
    )


def measure_empty_run(place: Path, turns: int) -> Taken:
    """Measure from a running session to the end of a run that finds all of its files delivered."""
    open_session()
    definition = define(
        place,
        f'origin: {{files: {{path: "landing/*.json", format: json, schema: "{SCHEMA}"}}}}\n'
        f"destinations: [delta: {{path: tables/orders}}]\nrun: {{batch: {{files: {FILES}}}}}\n",
    )
    land(place / "landing", FILES, 1)
    list(carry_batches(definition, 1))
    Pipeline.load(definition).run()
    taken = []
    for _ in range(turns):
        began = time.perf_counter()
        Pipeline.load(definition).run()
        taken.append(time.perf_counter() - began)
    return {RUN: taken}


def measure_scans(place: Path, turns: int) -> Taken:
    """Read the rows of one large clean file and discard them: each format with its scans, and with scans replaced by a
    positive answer."""
    spark = open_session()
    place.mkdir(parents=True, exist_ok=True)
    with (place / "a.csv").open("w", encoding="utf-8") as csv, (place / "a.json").open("w", encoding="utf-8") as lines:
        csv.write("id,email,amount,note\n")
        for number in range(LINES):
            csv.write(f'{number},a{number}@x.com,{number % 1000}.50,"said ""{number}"""\n')
            lines.write(f'{{"id": {number}, "email": "a{number}@x.com", "amount": "{number % 1000}.50"}}\n')

    def reading(kind: str, *, clean: bool, changes: dict[str, str] | None = None) -> Way:
        schema = "id long, email string, amount decimal(10,2)" + (", note string" if kind == "csv" else "")
        files = Files(path=str(place / f"a.{kind}"), format=kind, schema=schema, on_change=changes or {})
        backlog = files.survey(spark, Progress())
        span, told = backlog.take("0", None, Limits()), files.columns(spark, backlog)
        assert span is not None
        assert told is not None
        plan = make_batch(span, told)

        def way(_: Path, __: int) -> Iterator[float]:
            began = time.perf_counter()
            with ExitStack() as seen:
                for where, name in _LOOKS if clean else ():
                    seen.enter_context(mock.patch.object(where, name, return_value=True))
                files.fetch(spark, [plan]).frame().write.format("noop").mode("overwrite").save()
            yield time.perf_counter() - began

        return way

    ways = {
        PLAIN: reading("csv", clean=True),
        QUOTES: reading("csv", clean=False),
        JSON: reading("json", clean=True),
        LETTERS: reading("json", clean=False),
        KEYS: reading("json", clean=False, changes={"extra": "nack"}),
    }
    return measure_in_turns(ways, place, turns)


CASES = (
    Case(
        name="listing",
        says=f"a folder of {MANY:,} files, listed in the order in which they are carried",
        measure=measure_listing,
        turns=9,
        bars=(Bar(of=OURS, to=SYSTEM, most=2.0),),
    ),
    Case(
        name="nothing",
        says=f"a run over a folder of {FILES:,} files, all carried, in a session that is up",
        measure=measure_empty_run,
        turns=9,
        bars=(Bar(of=RUN, most=1.0),),
        unit="s",
    ),
    Case(
        name="scans",
        says=f"{LINES:,} lines of a clean file, read and thrown away, with what they are scanned for",
        measure=measure_scans,
        turns=5,
        bars=(Bar(of=QUOTES, to=PLAIN, most=2.0), Bar(of=LETTERS, to=JSON, most=2.0)),
        unit="s",
    ),
)
