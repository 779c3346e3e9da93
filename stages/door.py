"""The door of a stage: which rows it is about (`when`), and what becomes of those that it refuses (`on_error`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar, cast, get_args

from stages.expressions import check_row_expression, repeatable
from stages.stage import OnError, Stage

if TYPE_CHECKING:
    from stages.rows import Rows

    R = TypeVar("R", bound=Rows)


def passed(stage: Stage, rows: R) -> R:
    """The rows behind the stage. Those that `when` does not name pass it by and stay as they are."""
    sound = rows.without_poison()
    if stage.changes_rows and stage.on_error == "discard":
        return cast("R", stage.apply(sound.aside(None, "discard").rejoined(rows)))
    if stage.changes_rows or (stage.when is None and stage.on_error in ("nack", "stop")):
        return cast("R", stage.apply(sound))
    condition = None if stage.when is None else rows.expression(stage.when)
    left = cast("R", stage.apply(sound.aside(condition, stage.on_error)))
    if condition is not None:
        _check_columns(rows, left)
    return left.rejoined(rows)


def problems_of(stage: Stage) -> Iterator[tuple[str, str]]:
    """What is wrong with what stands beside a stage's kind, by option."""
    if stage.on_error not in get_args(OnError):
        yield "on_error", f"expected nack, discard, keep or stop, got {stage.on_error!r}"
    if stage.changes_rows and stage.on_error == "keep":
        yield "on_error", "keep: other rows leave this stage than come, so none can go on as it came"
    if stage.when is None:
        return
    if stage.changes_rows:
        yield "when", "other rows leave this stage than come, so none can pass it by; say it inside of it"
    try:
        check_row_expression("when", stage.when)
    except ValueError as error:
        yield "when", str(error).partition(": ")[2]


def answers_again(stage: Stage) -> bool:
    """Whether the stage gives the same for the same rows, and is about the same ones, whenever it is asked."""
    return stage.repeatable and (stage.when is None or repeatable(stage.when))


def _check_columns(before: Rows, behind: Rows) -> None:
    """Raises ValueError unless rows that pass the stage by can have the columns of those that do not."""
    now = {field.name.lower(): field.dataType.simpleString() for field in behind.schema}
    for field in before.schema:
        was, becomes = field.dataType.simpleString(), now.get(field.name.lower())
        if becomes is None:
            raise ValueError(f"when: the stage takes column {field.name} away, which the rows that pass it by have")
        if becomes != was:
            raise ValueError(
                f"when: the stage makes column {field.name} {becomes}, and in the rows that pass it by it is {was}; "
                "give what it makes another name"
            )
