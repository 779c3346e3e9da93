"""How much there is to know and to carry on. Each number may only fall."""

from __future__ import annotations

import ast
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import click

from destinations.delta import Delta
from destinations.delta.direct_commit import TablePlace
from destinations.delta.writers import DeltaWriter
from destinations.destination import OpenDestination
from origins.batch import Backlog
from origins.batch_rows import BatchRows
from origins.files import Files
from origins.origin import Origin
from runners.command_line.commands import wherry
from runners.command_line.help_sections import SHARED
from runners.definitions.kinds import CONTRACTS, get_our_kinds, list_kinds, list_options
from runners.docs.site.reference import DEFINITION
from runners.model.events import BatchSettled, Event, RunStarted
from runners.pipeline import Pipeline
from runners.state.delta_ledger import LocalTable
from runners.state.ledger import Ledger
from runners.ways.choose import EVERY

ROOT = Path(__file__).parents[1]
SERVICE = [*(ROOT / "runners/service").rglob("*.py")]
FILES = [
    file
    for room in ("origins", "stages", "destinations", "runners")
    for file in (ROOT / room).rglob("*.py")
    if file not in SERVICE
]


def count_kinds() -> int:
    """Return how many kinds a definition can name."""
    return sum(len(get_our_kinds().list_names(role)) for role in CONTRACTS)


def count_options() -> int:
    """Return how many options a definition has."""
    inside = sum(len(kind.options) for kind in list_kinds() if kind.source == "wherry")
    return inside + sum(len(list_options(part)) for part in [*CONTRACTS.values(), *DEFINITION.values()])


def list_commands(command: click.Command) -> Iterator[click.Command]:
    """Yield the commands of a group that do something, or the command itself."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from list_commands(each)
    else:
        yield command


def count_late_imports() -> int:
    """Return how many times a function imports a module of Wherry or of another library."""
    functions = (
        node
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    )
    inside = {node for each in functions for node in ast.walk(each)}
    return sum(isinstance(node, ast.Import | ast.ImportFrom) for node in inside)


def count_lines(files: Sequence[Path]) -> int:
    """Return how many lines these files have, in hundreds."""
    return -(-sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) // 100)


def count_methods(each: ast.ClassDef) -> int:
    """Return how many public methods and properties this class itself defines."""
    functions = [node for node in each.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return len({node.name for node in functions if not node.name.startswith("_")})


def find_most_methods() -> int:
    """Return how many public methods the class with the most of them has."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in [*FILES, *SERVICE]]
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return max(map(count_methods, classes))


COUNTS: Mapping[str, tuple[int, Callable[[], int]]] = {
    "ways for a batch": (4, lambda: len(EVERY)),
    "writers of Delta": (2, lambda: len(DeltaWriter.__subclasses__())),
    "kinds": (29, count_kinds),
    "options of a definition": (212, count_options),
    "commands": (34, lambda: len(list(list_commands(wherry)))),
    "options of commands": (198, lambda: len(SHARED) + sum(len(each.params) for each in list_commands(wherry))),
    "imports inside functions": (113, count_late_imports),
    "most public methods of a class": (20, find_most_methods),
    "files": (296, lambda: len(FILES)),
    "hundreds of lines": (692, lambda: count_lines(FILES)),
    "files of the service": (37, lambda: len(SERVICE)),
    "hundreds of lines of the service": (68, lambda: count_lines(SERVICE)),
}
"""What is counted, and how many there may be."""

FILES_OF_A_BATCH = 70
"""In how many files code runs while a batch passes from its plan to the ledger."""
FILES_ON_THE_WAY = 20
"""How many of them a reader meets on the way from `Pipeline.run` to each of these steps."""
STEPS: Mapping[str, type | tuple[type, ...]] = {
    "take": Backlog,
    "append": Ledger,
    "fetch": Origin,
    "table": BatchRows,
    "write": OpenDestination,
    "offer": TablePlace,
    "commit": LocalTable,
}
"""What is done with a batch, and by which class: it is taken, recorded, fetched, read, written and committed."""


def test_a_number_only_falls() -> None:
    """A change that makes a number fall writes the lower number here."""
    assert {what: count() for what, (_, count) in COUNTS.items()} == {what: most for what, (most, _) in COUNTS.items()}


class _Follower:
    """Notes the files whose code the run and its runners execute from the beginning until the batch is settled."""

    def __init__(self) -> None:
        self.follows, self.files, self.way = False, set[Path](), set[Path]()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if self.follows and event == "call" and threading.current_thread().name.startswith(("Main", "wherry-runner")):
            self.files.add(Path(frame.f_code.co_filename))
            if isinstance(frame.f_locals.get("self"), STEPS.get(frame.f_code.co_name, ())):
                self.way.update(Path(each.f_code.co_filename) for each, _ in traceback.walk_stack(frame))

    def listen(self, event: Event) -> None:
        self.follows = isinstance(event, RunStarted) or (self.follows and not isinstance(event, BatchSettled))


def test_a_batch_passes_few_files(tmp_path: Path) -> None:
    """Its code, from its plan to its last entry in the ledger, is in 70 files. A reader follows it through 20."""
    (tmp_path / "a.json").write_text('{"id": 1}\n')
    follower = _Follower()
    pipeline = Pipeline(
        name="orders",
        origin=Files(path=str(tmp_path / "*.json"), format="json", schema="id long"),
        destinations=[Delta(path=str(tmp_path / "table"))],
        state=str(tmp_path / "state"),
    )
    threading.setprofile(follower)
    sys.setprofile(follower)
    try:
        report = pipeline.run(listeners=[follower.listen])
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert (report.read, report.batches) == (1, 1)
    assert len(follower.files.intersection(FILES)) <= FILES_OF_A_BATCH
    assert len(follower.way.intersection(FILES)) <= FILES_ON_THE_WAY, sorted(map(str, follower.way))
