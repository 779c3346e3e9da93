"""Measure `wherry dlq explain` and similar commands on a DLQ of ten million entries, each in a separate process.

    python -m tests.benchmarks --into FOLDER --case refused

The DLQ is a hundred files. Each file holds the refused rows of one batch, and ten batches belong to one run. Only the
row that `explain` tries again needs Spark.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Schema

from destinations.delta.data_files import describe_files, write
from destinations.delta.direct_commit import format_commit
from origins.nack import DLQ_COLUMNS, parse_columns
from runners.definitions.definition import Definition, load
from runners.model.entry import Entry
from runners.state.journal import Journal
from runners.state.location import StateLocation
from tests.benchmarks.case import Bar, Case, Taken

FILES, ROWS, FILES_OF_RUN = 100, 100_000, 10
BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)
DEFINITION = """
name: orders
origin: {memory: {schema: "id long, email string, amount string, at string"}, name: orders}
stages:
  - cast: {amount: "decimal(10,2)"}
  - require: {known: "email LIKE '%.example'"}
  - require: {positive_amount: "amount > 0"}
destinations: [{memory: {}, name: orders}]
state: state
dlq: {window: 0}
"""
READ = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("id", "long"), ("email", "string"), ("amount", "string"), ("at", "string"))
    ],
}
CAUSES = (("CAST", "cast"), ("PARSE", "origin"), ("known", "require"), ("positive_amount", "require#2"))


IN_A_SESSION = """
import sys, time
from pathlib import Path
from runners.definitions.definition import load
from runners.operations.explain_row import load_refused_row
definition = load(Path("orders.yaml"))
for id in sys.argv[1:]:
    began = time.perf_counter()
    load_refused_row(definition, id).try_again()
    print(time.perf_counter() - began)
"""


def measure_refused(place: Path, turns: int) -> Taken:
    """Measure the commands on such a DLQ."""
    make_dlq(place)
    ids = [f"{name_plan(7 * turn + 3)}/{1_000 * turn + 1}" for turn in range(turns + 1)]
    session = subprocess.run(
        [sys.executable, "-c", IN_A_SESSION, *ids], cwd=place, capture_output=True, text=True, check=True
    )
    shows = {
        "`dlq show --limit 5`": [],
        "the same with `--code known`": ["--code", "known"],
        "the same with `--text 4711@shop`": ["--text", "4711@shop"],
        "the same with `--file 00007.json`": ["--file", "00007.json"],
    }
    explained = [_time(place, "explain", each) for each in ids[1:]]
    return {
        _UNTIL_SPARK: [first for first, _ in explained],
        _TRIED: [*map(float, session.stdout.split()[1:])],
        "`dlq explain`, with a Spark that it starts": [whole for _, whole in explained],
        **{
            name: [_time(place, "show", "--limit", "5", *words)[1] for _ in range(turns)]
            for name, words in shows.items()
        },
        "`dlq summary`": [_time(place, "summary")[1]],
    }


_UNTIL_SPARK = "`dlq explain`, until all is printed that needs no Spark"
_TRIED = "`dlq explain` in a session that is up, with the row tried again"


def _time(place: Path, command: str, *words: str) -> tuple[float, float]:
    """Return the seconds of a process until `explain` has printed everything that needs no Spark, and until its end."""
    began, first = time.perf_counter(), 0.0
    main = "from runners.command_line.cli import main; main()"
    line = [sys.executable, "-c", main, "dlq", command, "orders.yaml", *words]
    with subprocess.Popen(line, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for printed in process.stdout:
            if printed.startswith("alike"):
                first = time.perf_counter() - began
    if process.returncode:
        raise RuntimeError(f"dlq {command} failed")
    return first, time.perf_counter() - began


def make_dlq(folder: Path, files: int = FILES) -> Definition:
    """Write a definition, its DLQ, and a ledger that knows the definition."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "orders.yaml").write_text(DEFINITION, encoding="utf-8")
    made = load(folder / "orders.yaml")
    journal = Journal(StateLocation.of(made.pipeline).open_ledger(None))
    body = {"pipeline": "orders", "definition": made.text, "hash": made.hash}
    journal.ledger.append([Entry(kind="open", body=body)], after=journal.state.seq)
    _write_dlq(folder / "state" / "dlq", files, made.hash)
    return made


def name_plan(number: int) -> str:
    """Return the plan of the batch with this number."""
    return f"{number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128:032x}"


def _write_dlq(folder: Path, files: int, definition: str) -> None:
    columns = parse_columns(DLQ_COLUMNS)
    DeltaTable.create(folder, Schema.from_json(columns.json()), configuration={"delta.checkpointInterval": "100"})
    kinds = {"string": pa.string(), "long": pa.int64(), "timestamp": pa.timestamp("us", "UTC")}
    arrow = pa.schema(
        [(each.name, kinds.get(each.dataType.typeName(), pa.list_(pa.string()))) for each in columns.fields]
    )
    for number in range(files):
        name = f"part-{number:05}-refused-c000.snappy.parquet"
        write([_make_entries(number, definition, arrow)], arrow, columns.json(), folder / name)
        bodies = describe_files({name: folder / name}, json.loads(columns.json()))
        tag = json.dumps({"wherry": [{"plan": name_plan(number), "key": f"{name_plan(number)}/dlq"}]})
        log = folder / "_delta_log" / f"{number + 1:020}.json"
        log.write_text(format_commit(bodies, tag, number), encoding="utf-8")
    DeltaTable(folder).create_checkpoint()


def _make_entries(number: int, definition: str, schema: pa.Schema) -> pa.Table:
    """Return the refused rows of one batch. Their causes differ between runs."""
    plan, run = name_plan(number), number // FILES_OF_RUN
    causes = [CAUSES[min(3, (place * 7 + run * place // 50) % (5 + run % 3))] for place in range(ROWS)]
    amounts = [f"{place % 977},{place % 89:02}" for place in range(ROWS)]
    rows = [
        f'{{"id":{number * ROWS + place},"email":"{place % 5_003}@shop.example","amount":"{amounts[place]}",'
        f'"at":"2026-01-{1 + place % 28:02}T12:00:00"}}'
        for place in range(ROWS)
    ]
    said = {
        "CAST": "column amount: '{}' is not a decimal(10,2)",
        "PARSE": "column id: '{}' is not a bigint",
        "known": "known: email LIKE '%.example' is false",
        "positive_amount": "positive_amount: amount > 0 is false",
    }
    same = {
        "pipeline": "orders",
        "origin": "orders",
        "lane": "0",
        "number": number + 1,
        "plan": plan,
        "run": f"{run:032x}",
        "destination": None,
        "delivered_to": [],
        "row_schema": json.dumps(READ),
        "original_schema": json.dumps(READ),
        "part": f"landing/{number:05}.json",
        "nacked_at": BEGAN + timedelta(hours=number),
        "definition": definition,
        "replays": None,
    }
    own = {
        "id": [f"{plan}/{place + 1}" for place in range(ROWS)],
        "stage": [stage for _, stage in causes],
        "code": [code for code, _ in causes],
        "message": [said[code].format(amount) for (code, _), amount in zip(causes, amounts, strict=True)],
        "row": rows,
        "original": rows,
        "position": list(range(1, ROWS + 1)),
    }
    return pa.table(
        [pa.array(own[field.name] if field.name in own else [same[field.name]] * ROWS, field.type) for field in schema],
        schema=schema,
    )


CASES = (
    Case(
        name="refused",
        says="a DLQ of 10,000,000 entries in 100 files",
        measure=measure_refused,
        bars=(
            Bar(of=_UNTIL_SPARK, most=2.0),
            Bar(of=_TRIED, most=2.0),
        ),
    ),
)
