"""Make states with an open batch: `python -m tests.scenarios.open_plans FOLDER`, then `… --pack FOLDER FILE`.

`python -m tests.scenarios.open_plans --release` makes the archive of the version that is about to be released.

Each case is a pipeline in a separate folder. A first run delivers its first files. A second run processes the others
and is killed at a point. Commit 2e11bb8 made `open_plans.tar.xz` in this way. Never make that archive again, and
none of a released version, because later versions must open those states. Put a new case into a new archive.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from origins.crash_points import watch_points
from runners.model.text import find_version
from runners.pipeline import Pipeline
from runners.running.backfill import Backfill
from runners.running.replay import Replay
from runners.state.journal import Journal
from runners.state.location import StateLocation
from tests.crash_injector import CrashInjector
from tests.scenarios.shared_jvm import Server, Spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from destinations.labels import Label

ONE = "  - delta: {path: tables/a}\n"
TWO = ONE + "  - delta: {path: tables/b}\n"
CAST = "  - cast: {amount: int}\n"
TWICE = CAST + '  - sql: "select *, explode(array(1, 2)) as copy from rows"\n  - require: {sane: "amount < 100"}\n'
MENDED = "  - with_columns: {amount: \"replace(amount, 'x', '1')\"}\n" + CAST
LARGE = 5 << 20
"""The size of a file whose batch is not small, in bytes. Nearly all of them are spaces."""
KILLED = -9
ENOUGH = 120.0
"""The seconds after which waiting ends."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pipeline, and the point at which its second run dies."""

    point: str
    later: str = ""
    """The point at which a third run dies. It finds the open batch of the second run."""
    destinations: str = ONE
    stages: str = CAST
    more: str = ""
    """Further lines of the definition."""
    run: str = ""
    """Further options of `run`."""
    lanes: int = 1
    form: str = "json"
    refused: bool = False
    """Whether the files of the second run contain a row that is refused."""
    large: bool = False
    verb: str = "run"
    """The operation that the second run performs."""
    mended: str = ""
    """Stages that replace the others before the second run."""
    processes: int = 1
    """How many processes share the second run."""
    compacted: bool = False
    """Whether the ledger is compacted after the kill."""

    @property
    def definition(self) -> str:
        """The text of the definition."""
        return f"""name: orders
origin:
  files: {{path: "landing/*.{self.form}", format: {self.form}, schema: "id long, amount string"}}
  lanes: {self.lanes}
stages:
{self.stages}destinations:
{self.destinations}dlq: {{window: 0}}
run: {{batch: {{files: 1}}, history: 0s{self.run}}}
{self.more}"""

    def wants(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is delivered in the end."""
        return bool(self.mended) or row["amount"] != "x"


CASES: Mapping[str, Case] = {
    "straight-planned": Case(point="after-plan"),
    "straight-landed": Case(point="after-write"),
    "straight-compacted": Case(point="after-write", compacted=True),
    "straight-resting": Case(point="resting", run=", retry: {wait: 10ms}"),
    "straight-fenced": Case(point="before-write", later="after-fence"),
    "merge-landed": Case(
        point="after-write",
        destinations="  - delta: {path: tables/a, mode: merge, keys: [id], sequence_by: id}\n",
    ),
    "group-planned": Case(point="after-plan", lanes=3),
    "group-landed": Case(point="after-write", lanes=3),
    "prepared-undecided": Case(point="after-prepare", destinations=TWO, refused=True),
    "prepared-small": Case(point="after-prepared", destinations=TWO, refused=True),
    "prepared-letters": Case(point="after-dlq", refused=True),
    "prepared-picked": Case(point="between-writes", destinations=TWO, refused=True, large=True),
    "prepared-copied": Case(
        point="between-writes",
        destinations=TWO,
        stages="  - require: {number: \"amount <> 'x'\"}\n",
        form="parquet",
        refused=True,
        large=True,
    ),
    "prepared-sections": Case(point="between-writes", destinations=TWO, stages=TWICE, refused=True, large=True),
    "prepared-published": Case(point="after-settle", destinations=TWO, more="delivery: after_any\n", refused=True),
    "files-written": Case(point="after-write", destinations="  - files: {path: tables/a}\n"),
    "files-claimed": Case(
        point="before-write", later="after-claim", destinations="  - files: {path: tables/a}\n", refused=True
    ),
    "function-called": Case(
        point="after-write", destinations=ONE + "  - python: tests.scenarios.open_plans:take\n", refused=True
    ),
    "replay-decided": Case(point="after-prepared", destinations=TWO, refused=True, verb="replay", mended=MENDED),
    "backfill-landed": Case(point="after-write", verb="backfill"),
    "shared-lanes": Case(point="after-write", lanes=2, run=", assignment: round_robin, lease: 20s", processes=2),
}

RELEASED = (
    "straight-planned",
    "straight-landed",
    "straight-compacted",
    "merge-landed",
    "group-planned",
    "prepared-undecided",
    "prepared-letters",
    "prepared-picked",
    "prepared-published",
    "files-claimed",
    "replay-decided",
    "backfill-landed",
    "shared-lanes",
)
"""The cases in the archive of a release. They have each kind of open batch."""


def make_case(name: str, folder: Path, spark: Spark) -> None:
    """Create the state of this case in the folder."""
    case = CASES[name]
    call = partial(_call, name, folder, spark)
    (folder / "landing").mkdir(parents=True)
    (folder / "pipeline.yaml").write_text(case.definition, encoding="utf-8")
    _land(folder, case, [0, 1, 2, 3], refused=case.refused and case.verb == "replay", large=False)
    call("", expected=0)
    if case.mended:
        (folder / "pipeline.yaml").write_text(replace(case, stages=case.mended).definition, encoding="utf-8")
    if case.processes > 1:
        _share(name, folder, spark)
    else:
        if case.verb == "run":
            _land(folder, case, [4, 5, 6, 7], refused=case.refused, large=case.large)
        call(case.point)
    if case.later:
        call(case.later)
    if case.compacted:
        Journal(StateLocation.of(Pipeline.load(folder / "pipeline.yaml")).open_ledger(None)).compact(every=1)


def _land(folder: Path, case: Case, numbers: Sequence[int], *, refused: bool, large: bool) -> None:
    """Write files of two rows, in this order. With `refused`, each file has a third row."""
    for number in numbers:
        ids = [10 * number + 1, 10 * number + 2, *[10 * number + 3] * refused]
        rows = [{"id": each, "amount": "x" if each % 10 == 3 else "1"} for each in ids]
        file = folder / "landing" / f"{number}.{case.form}"
        blanks = LARGE if large else 0
        if case.form == "parquet":
            _write_parquet(file, rows, blanks)
        else:
            file.write_text("".join(json.dumps(row) + " " * blanks + "\n" for row in rows), encoding="utf-8")
        os.utime(file, (1_700_000_000 + number,) * 2)


def _write_parquet(file: Path, rows: Sequence[Mapping[str, Any]], blanks: int) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    columns = {"id": [row["id"] for row in rows], "amount": [row["amount"] for row in rows]}
    unread = {"unread": [" " * blanks for _ in rows]} if blanks else {}
    parquet.write_table(pa.table({**columns, **unread}), file, compression="none", use_dictionary=False)


def _call(name: str, folder: Path, spark: Spark, point: str, *, expected: int = KILLED) -> None:
    ended = _begin(name, folder, spark, point)
    _, said = ended.communicate()
    assert ended.returncode == expected, f"{name} {point}: {ended.returncode}\n{said.decode()[-3000:]}"


def _begin(name: str, folder: Path, spark: Spark, point: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.scenarios.open_plans", "--carry", name, str(folder), point]
    command.append(json.dumps(asdict(spark)))
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)


def _share(name: str, folder: Path, spark: Spark) -> None:
    """Let two processes have one lane each, and then die at a batch. The last process may have taken the other lane
    before."""
    processes = [_begin(name, folder, spark, point) for point in ("after-write", "after-plan")]
    try:
        journal = Journal(StateLocation.of(Pipeline.load(folder / "pipeline.yaml")).open_ledger(None))
        end = time.monotonic() + ENOUGH
        while len({held.owner for held in journal.state.held.values()}) < 2:
            assert time.monotonic() < end, [process.poll() for process in processes]
            time.sleep(0.1)
            journal.catch_up()
        _land(folder, CASES[name], range(4, 12), refused=False, large=False)
        assert [process.wait(ENOUGH) for process in processes] == [KILLED, KILLED]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _carry(name: str, folder: Path, point: str, spark: Spark) -> None:
    """Run in a separate process. Without a point, it does not die."""
    spark.session(connect=False)
    case, pipeline = CASES[name], Pipeline.load(folder / "pipeline.yaml")
    os.environ[TAKEN] = str(folder / "taken")
    crash = CrashInjector(point, plan=0 if point and point == case.later else 1)
    with watch_points(crash):
        if not point:
            pipeline.run()
        elif case.verb == "replay":
            pipeline.replay(Replay(reason="mended"))
        elif case.verb == "backfill":
            pipeline.backfill(Backfill(reason="once more", again=True))
        else:
            pipeline.run(follow=case.processes > 1, listeners=[crash.note_event])


TAKEN = "WHERRY_TEST_TAKEN"
"""The environment variable with the file into which the function destination writes."""


def take(rows: DataFrame, label: Label) -> int:
    """Deliver rows to a destination without memory: append a line to a file."""
    ids = [row["id"] for row in rows.collect()]
    with open(os.environ[TAKEN], "a", encoding="utf-8") as file:
        file.write(json.dumps([label.key, ids]) + "\n")
    return len(ids)


def pack_cases(folder: Path, file: Path) -> None:
    """Pack all cases into one archive, without the checksum files that Hadoop writes."""

    def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        hidden = member.name.rsplit("/", 1)[-1].startswith(".") and member.name.endswith(".crc")
        return None if hidden else member

    with tarfile.open(file, "w:xz", preset=9) as packed:
        for case in sorted(folder.iterdir()):
            packed.add(case, case.name, filter=kept)


def main(words: Sequence[str]) -> None:
    if words[0] == "--carry":
        _carry(words[1], Path(words[2]), words[3], Spark(**json.loads(words[4])))
    elif words[0] == "--pack":
        pack_cases(Path(words[1]), Path(words[2]))
    elif words[0] == "--release":
        with tempfile.TemporaryDirectory() as folder:
            make_cases(Path(folder), RELEASED)
            pack_cases(Path(folder), name_archive(find_version()))
    else:
        make_cases(Path(words[0]).absolute(), words[1:] or [*CASES])


def make_cases(folder: Path, names: Sequence[str]) -> None:
    """Create the states of these cases, each in a folder of its name."""
    with tempfile.TemporaryDirectory() as place:
        server = Server(Path(place))
        for name in names:
            make_case(name, folder / name, server.get())
        server.close()


def name_archive(version: str) -> Path:
    """Return where the archive of a released version is."""
    return Path(__file__).with_name("released") / f"{version}.tar.xz"


if __name__ == "__main__":
    main(sys.argv[1:])
