"""What a scheduler would do with a directory, said without starting anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from origins.batch import JSON
from runners.definitions.problems import nearest
from runners.errors import Refusal
from runners.schedules.definitions_folder import DefinitionsFolder
from runners.schedules.marks import FolderMarks, Mark, Marks, MemoryMarks
from runners.schedules.roster import Roster
from runners.schedules.schedule_words import due_times, when


def marks_of(directory: Path) -> Marks:
    """The marks that schedulers of this directory share. Raises `Refusal` where they cannot be written."""
    return FolderMarks(_marks(directory))


def plan(folder: DefinitionsFolder, now: datetime) -> dict[str, JSON]:
    """`{"scheduled": [{"pipeline", "file", "when", "next", "paused"}], "by_hand": {name: file}, "broken": {file: why}}`

    What comes first stands first; `next` are three moments.

    Raises `Refusal` where there is no directory.
    """
    roster = Roster.of(folder.open())
    marks = marks_of(folder.path) if _marks(folder.path).exists() else MemoryMarks()
    scheduled: list[Mapping[str, JSON]] = []
    for name, definition in sorted(roster.scheduled.items()):
        options = definition.pipeline.schedule
        assert options is not None
        paused = (marks.of(name) or Mark(served=now)).paused
        due = [] if paused is not None else due_times(options, now, 3)
        scheduled.append(
            {
                "pipeline": name,
                "file": definition.path.name if definition.path else None,
                "when": when(options),
                "next": [moment.isoformat() for moment in due],
                "paused": paused,
            }
        )
    scheduled.sort(key=lambda each: each["next"][0] if each["next"] else "~")
    return {"scheduled": scheduled, "by_hand": dict(roster.by_hand), "broken": dict(roster.broken)}


def pause(folder: DefinitionsFolder, name: str, why: str | None, now: datetime) -> None:
    """Let nothing of a pipeline begin, for this reason, or again with None; a scheduler that is there hears of it.

    Raises `Refusal` for a name that is not scheduled there.
    """
    roster = Roster.of(folder.open())
    if name not in roster.scheduled:
        raise Refusal(
            f"No pipeline '{name}' is scheduled in {folder.path}; {nearest(name, roster.scheduled)}",
            hint=f"What there is:  wherry schedule {folder.path} --plan",
        )
    marks_of(folder.path).pause(name, why, now)


def _marks(directory: Path) -> Path:
    return directory / ".wherry" / "schedule"
