"""Which rows of the DLQ come from the old content of an edited file."""

from __future__ import annotations

from typing import Any

from origins.memory import Memory
from runners.operations.redo import RedoPreview
from runners.running.choice import Letter
from runners.running.redo import FileRedo, OldLetters


def make_letter(name: str, **columns: Any) -> Letter:
    return Letter(id=name, origin="origin", stage="cast", **columns)


REDO = FileRedo(
    origin=Memory(schema="id long"),
    file="a.json",
    lane="0",
    key="k",
    span=None,
    alone=["alone"],
    mixed=["mixed"],
    replayed={"again": ["alone/1", "mixed/2"], "same": ["alone/1"], "others": ["mixed/2", "b/1"]},
)
B = make_letter("mixed/2", part="b.json")


def sort_letters(*letters: Letter) -> OldLetters:
    """Sort these rows. Only the last of them waits."""
    return REDO.sort_letters(letters, letters[-1:])


def test_a_row_of_a_batch_with_only_the_file_is_old() -> None:
    """In a batch with several files, the row names its file."""
    assert sort_letters(make_letter("alone/7")).old == ("alone/7",)
    assert sort_letters(make_letter("mixed/1", part="a.json")).old == ("mixed/1",)
    assert sort_letters(B) == OldLetters()
    assert sort_letters(make_letter("other/1", part="a.json")) == OldLetters()


def test_a_row_that_replays_refused_again_is_traced_to_its_first_refusal() -> None:
    """It may have been replayed several times."""
    first = make_letter("mixed/1", part="a.json")
    second = make_letter("again/1", replays="mixed/1")
    assert sort_letters(first, second, make_letter("later/1", replays="again/1")).old == ("later/1",)
    assert sort_letters(B, make_letter("again/2", replays="mixed/2")) == OldLetters()
    assert sort_letters(make_letter("again/1", replays="alone/1")).old == ("again/1",)


def test_a_row_without_a_file_is_unsure() -> None:
    """It is kept, unless the replay that refused it had rows of one kind only."""
    assert sort_letters(make_letter("mixed/3")).unsure == ("mixed/3",)
    assert sort_letters(make_letter("again/2", replays="mixed/9")).unsure == ("again/2",)
    assert sort_letters(B, make_letter("again/1")).unsure == ("again/1",)
    assert sort_letters(B, make_letter("same/1")).old == ("same/1",)
    assert sort_letters(B, make_letter("others/1")) == OldLetters()


def test_unsure_rows_are_named_with_the_command_that_discards_them() -> None:
    """The command has their ids, so it can be copied."""
    (said,) = RedoPreview(file="a.json", read=None, unsure=["p/1", "p/2"]).notices
    assert said == (
        "The old a.json may have had 2 refused rows that still wait in the DLQ. If so, discard:  wherry dlq discard "
        "FILE --reason 'a.json was redone' --id p/1 --id p/2"
    )
