"""States with an open batch of every kind, left by older versions, are opened and continued."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, QueryBuilder
from pyarrow import parquet

from runners.model.entry import FORMAT
from runners.model.pipeline_state import PipelineState
from runners.model.text import find_version
from runners.pipeline import Pipeline
from runners.running.backfill import Backfill
from runners.running.replay import Replay
from runners.state.delta_ledger import DeltaLedger
from runners.state.journal import Journal
from tests.scenarios.open_plans import CASES, RELEASED, TAKEN, name_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDER = Path(__file__).with_name("open_plans.tar.xz")
"""The states of commit 2e11bb8, made by `tests.scenarios.open_plans`."""
RELEASES = sorted(name_archive("any").parent.glob("*.tar.xz"))
"""The states of each release."""
LEFT_BEHIND = [
    *((file, name) for file in RELEASES for name in RELEASED),
    *((OLDER, name) for name in CASES if name not in RELEASED),
]
ALWAYS = ("straight-compacted", "merge-landed", "prepared-picked", "prepared-published", "shared-lanes")
"""The cases whose batch is always finished. Those of all other kinds of open batches take long together."""
LARGEST = 300_000
"""How many bytes the archive of a release may have."""
ONCE_MORE = {"prepared-sections": 2, "backfill-landed": 2}
"""How often a table has each row, for stages that multiply rows and for rows that are delivered again."""


@pytest.fixture
def older(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Unpack the folder of a case."""
    archive, name = request.param
    with tarfile.open(archive) as packed:
        members = [each for each in packed.getmembers() if each.name.split("/")[0] == name]
        packed.extractall(tmp_path, members, filter="data")
    return tmp_path / str(name)


def name_case(case: tuple[Path, str]) -> str:
    return f"{case[0].name.split('.tar')[0]}-{case[1]}"


def read_state(folder: Path) -> PipelineState:
    return Journal(DeltaLedger(folder / ".wherry/orders/ledger")).state


def read_column(table: Path, column: str) -> list[Any]:
    """Return a column of a table, or of a folder of batches."""
    if not (table / "_delta_log").exists():
        files = table.glob("_lane=*/_batch=*/*.parquet")
        return [value for file in files for value in parquet.ParquetFile(file).read([column])[column].to_pylist()]
    rows = QueryBuilder().register("t", DeltaTable(str(table))).execute(f"select {column} from t").read_all()
    return list(rows[column].to_pylist())


def read_landing(folder: Path) -> list[Mapping[str, Any]]:
    """Return every row of every file."""
    files = sorted((folder / "landing").glob("*.json"))
    rows: list[Mapping[str, Any]] = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    for file in (folder / "landing").glob("*.parquet"):
        rows += parquet.ParquetFile(file).read(["id", "amount"]).to_pylist()
    return rows


def read_letters(folder: Path) -> list[int]:
    """Return the sorted ids of all rows in the dead letter queue."""
    return sorted(json.loads(each)["id"] for each in read_column(folder / ".wherry/orders/dlq", "original"))


def read_delivered(folder: Path) -> Mapping[str, Sequence[int]]:
    """Return the ids in each destination. A function has no memory and may get a row again, so its ids are counted
    once."""
    found = {table.name: sorted(read_column(table, "id")) for table in (folder / "tables").iterdir()}
    lines = (folder / "taken").read_text().splitlines() if (folder / "taken").exists() else ()
    taken = sorted({row for line in lines for row in json.loads(line)[1]})
    return {**found, "function": taken} if taken else found


def describe_open(state: PipelineState) -> set[str]:
    """Describe each open plan."""
    return {
        " ".join(
            [
                plan.batch.lane.split("/")[0].split("-")[0].rstrip("0123456789") or "lane",
                "straight" if plan.straight else "prepared",
                *["decided"] * bool(plan.decision),
                *["refused"] * bool(plan.decision and plan.decision.counts.nacked),
                *["sections"] * bool(plan.decision and plan.decision.sections > 1),
                *["published"] * plan.published,
                *["tried"] * bool(state.get_lane(plan.batch.lane).tried),
            ]
        )
        for plan in state.open_plans
    }


LEFT: Mapping[str, Collection[str]] = {
    "straight-planned": {"lane straight"},
    "straight-landed": {"lane straight"},
    "straight-compacted": {"lane straight"},
    "straight-resting": {"lane straight tried"},
    "straight-fenced": {"lane straight"},
    "merge-landed": {"lane straight"},
    "group-planned": {"lane straight"},
    "group-landed": {"lane straight"},
    "prepared-undecided": {"lane prepared"},
    "prepared-small": {"lane prepared decided refused"},
    "prepared-letters": {"lane straight decided refused"},
    "prepared-picked": {"lane prepared decided refused"},
    "prepared-copied": {"lane prepared decided refused"},
    "prepared-sections": {"lane prepared decided refused sections"},
    "prepared-published": {"lane prepared decided refused published"},
    "files-written": {"lane straight"},
    "files-claimed": {"lane straight"},
    "function-called": {"lane prepared decided refused"},
    "replay-decided": {"dlq prepared decided"},
    "backfill-landed": {"backfill straight"},
    "shared-lanes": {"lane straight"},
}
SEVERAL = {"group-planned": [(3, 1)], "group-landed": [(3, 1)], "shared-lanes": [(1, 1), (2, 2)]}
"""The numbers of open plans and of owners, if there may be several. A process that shares lanes may take the other lane
before it dies."""


def test_this_version_has_a_small_archive() -> None:
    """`python -m tests.scenarios.open_plans --release` makes it, and later versions open it."""
    archive = name_archive(find_version())
    assert archive in RELEASES
    assert archive.stat().st_size <= LARGEST


@pytest.mark.parametrize("older", LEFT_BEHIND, ids=name_case, indirect=True)
def test_the_archive_has_the_expected_open_plans(older: Path) -> None:
    """Each case has its kind of open plan in the present format, and the owner that died."""
    journal = Journal(DeltaLedger(older / ".wherry/orders/ledger"))
    assert {entry.format for entry in journal.tail} == {FORMAT}
    assert describe_open(journal.state) == LEFT[older.name]
    assert (len(journal.state.open_plans), len(journal.state.owners)) in SEVERAL.get(older.name, [(1, 1)])


def finish_case(name: str, pipeline: Pipeline) -> Sequence[str]:
    """Finish the open batches, and repeat the operation of the case. Return how each run ended."""
    reports = [pipeline.run(take_over="the older version has died")]
    if CASES[name].verb == "replay":
        reports.append(pipeline.replay(Replay(reason="once more")))
    if CASES[name].verb == "backfill":
        reports.append(pipeline.backfill(Backfill(reason="once more")))
    return [report.status for report in reports]


@pytest.mark.spark
@pytest.mark.promise("CD-22")
@pytest.mark.parametrize(
    "older",
    [pytest.param(each, marks=() if each[1] in ALWAYS else pytest.mark.long) for each in LEFT_BEHIND],
    ids=map(name_case, LEFT_BEHIND),
    indirect=True,
)
def test_a_batch_that_an_older_version_left_open_is_finished(
    older: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row is lost or doubled, the audit proves it, and no prepared rows remain in the state."""
    monkeypatch.setenv(TAKEN, str(older / "taken"))
    monkeypatch.chdir(older)
    case, pipeline = CASES[older.name], Pipeline.load(older / "pipeline.yaml")
    assert set(finish_case(older.name, pipeline)) == {"succeeded"}
    rows, delivered = read_landing(older), read_delivered(older)
    times = ONCE_MORE.get(older.name, 1)
    assert delivered == dict.fromkeys(delivered, sorted([row["id"] for row in rows if case.wants(row)] * times))
    assert read_letters(older) == sorted(row["id"] for row in rows if row["amount"] == "x")
    assert (read_state(older).open_plans, read_state(older).owners) == ((), ())
    assert list((older / ".wherry/orders/prepared").glob("*")) == []
    audit = pipeline.audit()
    assert ([str(each) for each in audit.problems], audit.balanced) == ([], True)
