"""Which rows of the DLQ an edited file left there; with ids alone."""

from __future__ import annotations

from typing import Any

from origins.memory import Memory
from runners.operations.redo import RedoPreview
from runners.running.choice import Letter
from runners.running.redo import FileRedo, OldLetters


def letter(name: str, **columns: Any) -> Letter:
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
B = letter("mixed/2", part="b.json")


def sort(*letters: Letter) -> OldLetters:
    """The last of the letters waits."""
    return REDO.sort_letters(letters, letters[-1:])


def test_a_row_of_a_batch_that_had_the_file_alone_is_old() -> None:
    """Of a batch with several files, the row says which file had it."""
    assert sort(letter("alone/7")).old == ("alone/7",)
    assert sort(letter("mixed/1", part="a.json")).old == ("mixed/1",)
    assert sort(B) == OldLetters()
    assert sort(letter("other/1", part="a.json")) == OldLetters()


def test_a_row_that_replays_refused_again_is_traced_to_the_first_refusal() -> None:
    """However often it was replayed."""
    first = letter("mixed/1", part="a.json")
    second = letter("again/1", replays="mixed/1")
    assert sort(first, second, letter("later/1", replays="again/1")).old == ("later/1",)
    assert sort(B, letter("again/2", replays="mixed/2")) == OldLetters()
    assert sort(letter("again/1", replays="alone/1")).old == ("again/1",)


def test_nothing_is_guessed_of_a_row_that_names_no_file() -> None:
    """It stays, unless the replay that refused it took rows of one kind alone."""
    assert sort(letter("mixed/3")).unsure == ("mixed/3",)
    assert sort(letter("again/2", replays="mixed/9")).unsure == ("again/2",)
    assert sort(B, letter("again/1")).unsure == ("again/1",)
    assert sort(B, letter("same/1")).old == ("same/1",)
    assert sort(B, letter("others/1")) == OldLetters()


def test_a_person_is_told_which_rows_stay_and_how_to_discard_them() -> None:
    """With their ids, so that the command can be copied."""
    (said,) = RedoPreview(file="a.json", read=None, unsure=["p/1", "p/2"]).notices
    assert said == (
        "The old a.json may have had 2 refused rows that still wait in the DLQ. If so, discard:  wherry dlq discard "
        "FILE --reason 'a.json was redone' --id p/1 --id p/2"
    )
