"""Random pipelines process random files by any way. Every row ends where a calculation in Python puts it."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pytest
from pyarrow import parquet

import destinations
from destinations.destination import Destination
from destinations.dlq import Dlq
from origins.files import Files
from runners.model.spec import BatchOptions, RunOptions
from runners.pipeline import Pipeline
from stages.cast import Cast
from stages.columns import WithColumns
from stages.conditions import Filter, Require
from stages.sql import Sql
from stages.stage import Stage
from tests.scenarios.conftest import Place, carry_pipeline

pytestmark = [pytest.mark.spark]

Row: TypeAlias = "dict[str, Any]"
BAD: Row = {}
"""A line that the origin refuses."""
COLUMNS = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.int32())])
WAYS: Sequence[Sequence[str]] = [
    *[()] * 3,
    ["straight", "written"],
    ["apart"],
    ["grouped", "straight"],
    *[["written"]] * 2,
]
LIMITS: Sequence[Mapping[str, Any]] = [
    *[{}] * 3,
    {"small_bytes": 0},
    {"small_refused": 1},
]


@dataclass(frozen=True)
class Model:
    """A stage, and what it does to a row as a function of Python: the row stays, is `refused` or is `filtered`."""

    stage: Stage
    judge: Callable[[Row], str]

    def process(self, row: Row) -> str:
        """Return what becomes of the row."""
        if self.stage.when is not None and row["id"] % 2:
            return ""
        became = self.judge(row)
        return {"discard": "filtered", "keep": ""}.get(self.stage.on_error, became) if became == "refused" else became


def cast_a(row: Row) -> str:
    if row["a"] is None or isinstance(row["a"], int):
        return ""
    if not row["a"].isdigit() or int(row["a"]) >= 2**31:
        return "refused"
    row["a"] = int(row["a"])
    return ""


def require_b(row: Row) -> str:
    return "" if row["b"] is not None and row["b"] > -2 else "refused"


def filter_b(row: Row) -> str:
    return "" if row["b"] is not None and row["b"] != 0 else "filtered"


def keep_row(row: Row) -> str:
    return ""


def draw_stage(chance: random.Random) -> Model:
    """Return one stage with random options."""
    when = chance.choice([None, None, "id % 2 = 0"])
    return chance.choice(
        [
            Model(Cast({"a": "int"}, on_error=chance.choice(["nack", "discard"])), cast_a),
            Model(Require({"b": "b > -2"}, when=when, on_error=chance.choice(["nack", "discard", "keep"])), require_b),
            Model(Filter("b != 0", when=when), filter_b),
            Model(WithColumns({"c": "case when b = 0 then 0 else b * b / b end"}), keep_row),
            Model(Sql("select * from rows"), keep_row),
        ]
    )


def draw_rows(chance: random.Random, ids: Iterator[int], *, bad: bool) -> list[Row]:
    """Return the rows of a file, of which some may be bad lines. A file may have none."""
    texts: list[str | None] = chance.choice([[None, "0", "7", "12"], [None, "0", "7", "x", "1e3", "9999999999"]])
    numbers: list[int | None] = chance.choice([[1, 2, 3], [None, -2, -1, 0, 1, 2]])

    def draw() -> Row:
        return {"id": next(ids), "a": chance.choice(texts), "b": chance.choice(numbers)}

    return [BAD if bad and chance.random() < 0.1 else draw() for _ in range(chance.choice([0, 0, 1, 3, 8]))]


def write_file(file: Path, chance: random.Random, rows: Sequence[Row]) -> None:
    """Write these rows in the format of the file's ending."""
    if file.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(list(rows), COLUMNS), file, row_group_size=3)
    elif file.suffix == ".json":
        drops = chance.random() < 0.5
        known = [{name: value for name, value in row.items() if value is not None or not drops} for row in rows]
        blank = chance.choice(["", "", "\n"])
        file.write_text("".join((json.dumps(row) if row else "{bad") + "\n" + blank for row in known))
    else:
        head = ["id,a,b"] if rows else chance.choice([[], ["id,a,b"]])
        fields = [",".join("" if value is None else str(value) for value in row.values()) for row in rows]
        file.write_text("".join(line + "\n" for line in [*head, *(each or "7,x,bad" for each in fields)]))


def draw_destinations(chance: random.Random, folder: Path) -> list[Destination]:
    """Return one to three destinations. The second one filters rows, and the third one refuses some."""
    kind: Literal["json", "parquet"] = chance.choice(["json", "parquet"])
    some = destinations.Delta(path=str(folder / "some"), stages=[Filter("b > 0")])
    files = destinations.Files(path=str(folder / "files"), format=kind, stages=[Require({"large": "id > 2"})])
    ends: list[Destination] = [destinations.Delta(path=str(folder / "all")), some, files]
    return ends[: chance.choice([1, 1, 2, 3])]


class Expected:
    """The ids of the rows in each place, by a calculation in Python."""

    def __init__(self, stages: Sequence[Model], names: Sequence[str]) -> None:
        self.stages = stages
        self.delivered: dict[str, list[int]] = {name: [] for name in names}
        self.refused: list[int] = []
        self.filtered = 0
        """The rows that stages before all destinations filter."""
        self.bad = 0

    def add(self, row: Row) -> None:
        """Add a row that was landed."""
        if row is BAD:
            self.bad += 1
            return
        row = dict(row)
        became = next(filter(None, (each.process(row) for each in self.stages)), "")
        if became == "refused" or (not became and "files" in self.delivered and row["id"] <= 2):
            self.refused.append(row["id"])
        elif became:
            self.filtered += 1
        else:
            for name in self.delivered:
                if name != "some" or (row["b"] or 0) > 0:
                    self.delivered[name].append(row["id"])


def read_ids(place: Place, name: str) -> list[int]:
    """Return the sorted ids of a destination. An id that is there twice is returned twice."""
    folder = place.folder / name
    if name != "files":
        return place.ids(name) if folder.exists() else []
    found = []
    for file in folder.rglob("[!._]*.*"):
        if any(part[0] == "." for part in file.relative_to(folder).parts):
            continue
        if file.suffix == ".json":
            found += [json.loads(line)["id"] for line in file.read_text().splitlines()]
        else:
            found += parquet.ParquetFile(file).read(["id"])["id"].to_pylist()
    return sorted(found)


FEW, MANY = 6, 100
"""How many pipelines are always drawn, and how many in all."""


@pytest.mark.promise("CD-16", "SS-03", "CN-13")
@pytest.mark.parametrize("draw", range(FEW))
def test_every_row_of_any_pipeline_ends_in_its_place(place: Place, draw: int) -> None:
    """Format, stages, destinations, lanes, batches, ways and thresholds are random. Two runs read the files."""
    check_pipeline(place, random.Random(draw))


@pytest.mark.long
def test_every_row_of_many_pipelines_ends_in_its_place(place: Place) -> None:
    """Each pipeline has a folder of its own, named after the number that draws it."""
    for draw in range(FEW, MANY):
        folder = place.folder / str(draw)
        folder.mkdir()
        check_pipeline(Place(folder, place.spark), random.Random(draw))


def check_pipeline(place: Place, chance: random.Random) -> None:
    """Draw a pipeline, run it twice, and compare the places of all rows with the calculation."""
    ids = iter(range(1, 1_000))
    kind, folder = chance.choice(["json", "csv", "parquet"]), place.folder
    landing = folder / "landing"
    landing.mkdir()
    lanes = chance.choice([1, 1, 2, 3])
    stages = [draw_stage(chance) for _ in range(chance.randint(0, 5))]
    drawn = draw_destinations(chance, folder)
    pipeline = Pipeline(
        name="orders",
        origin=Files(path=str(landing), format=kind, schema="id long, a string, b int", lanes=lanes),
        stages=[each.stage for each in stages],
        destinations=drawn,
        delivery=chance.choice(["after_all", "after_any"]),
        dlq=Dlq(window=0),
        keep_filtered=chance.choice(["0s", "30d"]),
        state=str(folder / ".wherry/orders"),
        run=RunOptions(batch=BatchOptions(files=chance.randint(1, 5))),
    )
    limits = {**chance.choice(LIMITS), "ways": chance.choice(WAYS)}
    expected = Expected(stages, ["all", "some", "files"][: len(drawn)])
    filtered = 0
    for run in range(2):
        read = 0
        for number in range(chance.randint(1, 6)):
            rows = draw_rows(chance, ids, bad=kind != "parquet" and chance.random() < 0.5)
            file = landing / f"{run}-{number}.{kind}"
            write_file(file, chance, rows)
            os.utime(file, (1_700_000_000 + 10 * run + number,) * 2)
            read += len(rows)
            for row in rows:
                expected.add(row)
        report = carry_pipeline(pipeline, **limits)
        assert (report.read, report.balanced) == (read, True)
        filtered += report.filtered
    assert filtered == expected.filtered
    assert {name: read_ids(place, name) for name in expected.delivered} == expected.delivered
    letters = place.refused() if (folder / ".wherry/orders/dlq").exists() else []
    refused = [json.loads(row["row"])["id"] for row in letters if row["stage"] != "origin"]
    assert (sorted(refused), len(letters) - len(refused)) == (expected.refused, expected.bad)
    assert pipeline.audit().balanced
