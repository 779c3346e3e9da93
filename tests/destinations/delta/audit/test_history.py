"""The audit finds from a table's history alone whether the rows of each commit are still in the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destinations.capabilities import BroughtBatch
from destinations.conformance import make_label
from destinations.delta.history import TableHistory, trace_history
from destinations.delta.log import LogCommit, make_tag
from origins.delta_actions import AddedFile, Version


class Table:
    """A table whose history a test writes version by version."""

    def __init__(self) -> None:
        self.commits: list[LogCommit] = []
        self.versions: list[Version] = []
        self.seen: dict[str, bool | None] = {}
        """Whether each of Wherry's files has its rows in the file that replaced it."""

    def turn(
        self,
        operation: str,
        *,
        brings: Sequence[str] = (),
        takes: Sequence[str] = (),
        rearranges: bool = False,
        text: str = "",
        metrics: Mapping[str, str] | None = None,
        rows: int = 3,
        plain: bool = True,
    ) -> int:
        """Add a version, and return its number."""
        number = len(self.commits)
        added = tuple(AddedFile(path=name, size=1, rows=rows, plain=plain) for name in brings)
        self.commits.append(
            LogCommit(version=number, operation=operation, parameters={}, metrics=metrics or {}, tag=text, at="noon")
        )
        self.versions.append(
            Version(
                number=number,
                operation=operation,
                added=() if rearranges else added,
                rewrites=bool(takes) and not rearranges,
                removed=frozenset(takes),
                columns=None,
                rearranged=added if rearranges else (),
            )
        )
        return number

    def batch(
        self, *names: str, number: int = 1, operation: str = "WRITE", takes: Sequence[str] = (), mode: str = "Append"
    ) -> int:
        """Add a batch of Wherry's."""
        text = make_tag([make_label(number=number)])
        rows = {"numOutputRows": str(3 * len(names)), "numSourceRows": "3"}
        version = self.turn(operation, brings=names, takes=takes, text=text, metrics=rows)
        self.commits[-1] = replace(self.commits[-1], parameters={"mode": mode})
        return version

    @property
    def story(self) -> TableHistory:
        """Return the history of the table."""
        return trace_history(self.commits, self.versions, "conformance", self.look)

    def look(self, before: Sequence[str], after: Sequence[str], mine: Sequence[str]) -> Mapping[str, bool | None]:
        """Return the results of comparing the files."""
        return {name: self.seen.get(name) for name in mine}

    @property
    def doubtful(self) -> list[tuple[int, int | None]]:
        """Return the batches that may have changed: the number, and the version that caused the doubt."""
        return [(each.label.number, each.doubt.version) for each in self.story.brought if each.doubt is not None]

    @property
    def lost(self) -> list[tuple[int, str, bool]]:
        """Return the batches that changed: the number, the code of the loss, and whether all rows are gone."""
        return [
            (each.label.number, each.loss.code, each.loss.whole) for each in self.story.brought if each.loss is not None
        ]


@pytest.fixture
def table() -> Table:
    """A table with two batches, of two files and of one."""
    made = Table()
    made.turn("CREATE TABLE")
    made.batch("a", "b", number=1)
    made.batch("c", number=2)
    return made


def test_a_deletion_in_a_file_leaves_a_part_of_the_batch(table: Table) -> None:
    """The loss names the version, and how many rows it removed."""
    version = table.turn("DELETE", brings=["b2"], takes=["b"], metrics={"numDeletedRows": "1"})
    assert table.lost == [(1, "ROWS_GONE", False)]
    (hurt,) = [each.loss for each in table.story.brought if each.loss]
    assert (hurt.version, hurt.reason) == (version, f"version {version} (DELETE, noon) removed them (1 row)")


def test_a_restore_removes_later_batches(table: Table) -> None:
    """The earlier batches remain."""
    table.turn("RESTORE", takes=["c"])
    assert table.lost == [(2, "RESTORED", True)]


def test_rows_brought_again_after_a_restore_are_present(table: Table) -> None:
    """The rows of the first commit are gone, and the rows of the second are present."""
    table.turn("RESTORE", takes=["c"])
    table.batch("c2", number=2)
    losses = [each.loss for each in table.story.brought if each.label.number == 2]
    assert [loss is None for loss in losses] == [False, True]


def test_merges_and_replacements_by_wherry_are_no_loss(table: Table) -> None:
    """They replace rows on purpose."""
    table.batch("ab", number=3, operation="MERGE", takes=["a", "b"])
    table.batch("d", number=4, takes=["ab", "c"])
    assert table.lost == []


def test_a_loss_before_a_replacement_is_no_loss_afterwards(table: Table) -> None:
    """The replacement would have removed the rows anyway."""
    table.turn("DELETE", takes=["c"])
    assert table.lost == [(2, "ROWS_GONE", True)]
    table.batch("d", number=3, takes=["a", "b"], mode="Overwrite")
    assert table.lost == []


def test_a_batch_with_deleted_rows_remains_partial_after_a_compaction(table: Table) -> None:
    """The loss names the version of the deletion."""
    version = table.turn("DELETE", brings=["c2"], takes=["c"])
    table.turn("OPTIMIZE", brings=["all"], takes=["a", "b", "c2"], rearranges=True)
    assert table.lost == [(2, "ROWS_GONE", False)]
    assert [each.loss.version for each in table.story.brought if each.loss] == [version]


def test_rows_that_another_pipeline_overwrites_are_a_loss(table: Table) -> None:
    """This holds although its commit has a tag. Its merges are no loss."""
    theirs = make_label(number=9)
    theirs = replace(theirs, batch=replace(theirs.batch, pipeline="invoices"))
    table.turn("MERGE", brings=["c2"], takes=["c"], text=make_tag([theirs]))
    assert table.lost == []
    table.turn("WRITE", brings=["x"], takes=["a", "b"], text=make_tag([theirs]))
    assert [(number, code) for number, code, _ in table.lost if number == 1] == [(1, "ROWS_GONE")]


def test_deleted_rows_of_older_versions_are_a_loss_of_the_table(table: Table) -> None:
    """The history begins after the commit that brought them, so no batch is named."""
    table.turn("DELETE", takes=["b", "c"])
    story = trace_history(table.commits[2:], table.versions[2:], "conformance")
    assert [each.label.number for each in story.brought if each.loss] == [2]
    assert [loss.code for loss in story.losses] == ["ROWS_GONE"]


def test_without_files_the_operations_show_what_is_lost(table: Table) -> None:
    """If a table's log cannot be read, the commits show which batches came and which versions removed rows."""
    table.turn("DELETE", takes=["c"], metrics={"numDeletedRows": "3"})
    story = trace_history(table.commits, [], "conformance")
    assert [(each.rows, each.loss) for each in story.brought] == [(6, None), (3, None)]
    assert [loss.reason for loss in story.losses] == ["version 3 (DELETE, noon) removed them (3 rows)"]


def test_a_label_on_an_operation_that_brings_no_rows_proves_nothing(table: Table) -> None:
    """The configuration of a session can put a label on every operation."""
    table.turn("OPTIMIZE", brings=["ab"], takes=["a", "b"], rearranges=True, text=make_tag([make_label(number=7)]))
    assert 7 not in [each.label.number for each in table.story.brought]


def mix_files(table: Table) -> None:
    """Compact the nine rows of the first two batches and three rows of another writer into one file."""
    table.turn("WRITE", brings=["x"])
    table.turn("OPTIMIZE", brings=["abcx"], takes=["a", "b", "c", "x"], rearranges=True, rows=12)


@pytest.mark.parametrize(
    ("seen", "lost", "doubtful"),
    [
        (True, [], []),
        (None, [], [(1, 5), (2, 5)]),
        (False, [(1, "ROWS_GONE"), (2, "ROWS_GONE")], []),
    ],
)
def test_a_change_of_as_many_rows_as_others_have_is_judged_by_the_files(
    table: Table, seen: bool | None, lost: list[tuple[int, str]], doubtful: list[tuple[int, int]]
) -> None:
    """The changed file also holds Wherry's rows. If the files cannot be compared, the change is a doubt and no loss."""
    mix_files(table)
    table.seen = dict.fromkeys(["a", "b", "c"], seen)
    table.turn("UPDATE", brings=["new"], takes=["abcx"], metrics={"numUpdatedRows": "3"}, rows=12)
    assert ([(number, code) for number, code, _ in table.lost], table.doubtful) == (
        [each[:2] for each in lost],
        doubtful,
    )


@pytest.mark.parametrize(
    ("metrics", "rows"),
    [({"numDeletedRows": "4"}, 8), ({}, 12), ({"numDeletedRows": "3"}, 8)],
    ids=["more than are his", "nobody knows how many", "too few are left"],
)
def test_a_change_that_must_include_wherrys_rows_is_a_loss(table: Table, metrics: Mapping[str, str], rows: int) -> None:
    """The comparison of the files does not matter then."""
    mix_files(table)
    table.seen = dict.fromkeys(["a", "b", "c"], True)
    table.turn("DELETE", brings=["new"], takes=["abcx"], metrics=metrics, rows=rows)
    assert [(number, code) for number, code, _ in table.lost] == [(1, "ROWS_GONE"), (2, "ROWS_GONE")]


def test_rows_deleted_by_a_deletion_vector_are_a_doubt(table: Table) -> None:
    """The file remains, and Wherry does not read which of its rows are deleted. The doubt follows the file."""
    mix_files(table)
    table.seen = dict.fromkeys(["a", "b", "c"], True)
    table.turn("DELETE", brings=["abcx"], takes=["abcx"], metrics={"numDeletedRows": "2"}, rows=12, plain=False)
    assert (table.lost, table.doubtful) == ([], [(1, 5), (2, 5)])
    table.turn("OPTIMIZE", brings=["new"], takes=["abcx"], rearranges=True, rows=10)
    assert (table.lost, table.doubtful) == ([], [(1, 5), (2, 5)])
    table.turn("RESTORE", brings=["abcx"], takes=["new"], rows=12)
    assert (table.lost, table.doubtful) == ([], [])
    table.turn("DELETE", takes=["abcx"], metrics={"numDeletedRows": "12"})
    assert [number for number, _, _ in table.lost] == [1, 2]


@given(st.data())
def test_a_restore_to_the_version_after_the_batches_makes_all_batches_whole(data: st.DataObject) -> None:
    """Before the restore, exactly the batches whose rows were deleted or rewritten are lost."""
    table = Table()
    table.turn("CREATE TABLE")
    files = [f"f{number}" for number in range(data.draw(st.integers(1, 6)))]
    for number, name in enumerate(files):
        table.batch(name, number=number)
    active, harmed = set(files), set()
    held = {name: {name} for name in files}
    for step in range(data.draw(st.integers(0, 6))):
        takes = data.draw(st.sets(st.sampled_from(sorted(active)), min_size=1)) if active else set()
        made = f"g{step}"
        if not takes:
            break
        inside = set().union(*(held[name] for name in takes))
        kind = data.draw(st.sampled_from(["OPTIMIZE", "UPDATE", "DELETE"]))
        brings = [] if kind == "DELETE" else [made]
        table.turn(kind, brings=brings, takes=sorted(takes), rearranges=kind == "OPTIMIZE")
        active = (active - takes) | set(brings)
        held[made] = inside
        if kind != "OPTIMIZE":
            harmed |= inside
    assert {f"f{number}" for number, _, _ in table.lost} == harmed
    table.turn("RESTORE", brings=sorted(set(files) - active), takes=sorted(active - set(files)))
    assert table.lost == []


def test_a_commit_of_several_batches_counts_as_each_of_them() -> None:
    """Each has the rows and the keys of the whole commit."""
    table = Table()
    labels = [make_label(number=1, lane="a"), make_label(number=1, lane="b")]
    table.turn("WRITE", brings=["a"], text=make_tag(labels), metrics={"numOutputRows": "6"})
    found: Sequence[BroughtBatch] = table.story.brought
    assert [(each.label.lane, each.rows, list(each.together)) for each in found] == [
        ("a", 6, [one.key for one in labels]),
        ("b", 6, [one.key for one in labels]),
    ]
