"""The definitions of a directory taken together, and what a scheduler would do with them, without starting anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from pathlib import Path

from origins.batch import JSON
from origins.quick_dataclass import dataclass
from runners.definitions.definition import Definition, DefinitionsFolder, Found
from runners.definitions.document import suggest_nearest
from runners.model.errors import Refusal
from runners.model.spec import ScheduleOptions
from runners.model.timetable import describe_times, list_due_times
from runners.schedules.run_marks import FolderMarks, MemoryMarks, RunMark, RunMarks


def open_marks(directory: Path) -> RunMarks:
    """The marks that schedulers of this directory share. Raises `Refusal` where they cannot be written."""
    return FolderMarks(_marks_folder(directory))


def plan(folder: DefinitionsFolder, now: datetime) -> dict[str, JSON]:
    """`{"scheduled": [{"pipeline", "file", "when", "next", "paused"}], "by_hand": {name: file}, "broken": {file: why}}`

    What comes first stands first; `next` are three moments.

    Raises `Refusal` where there is no directory.
    """
    roster = ScheduleCatalog.of(folder.open())
    marks = open_marks(folder.path) if _marks_folder(folder.path).exists() else MemoryMarks()
    scheduled: list[Mapping[str, JSON]] = []
    for name, definition in sorted(roster.scheduled.items()):
        options = definition.pipeline.schedule
        assert options is not None
        paused = (marks.get(name) or RunMark(served=now)).paused
        due = [] if paused is not None else list_due_times(options, now, 3)
        scheduled.append(
            {
                "pipeline": name,
                "file": definition.path.name if definition.path else None,
                "when": describe_times(options),
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
    roster = ScheduleCatalog.of(folder.open())
    if name not in roster.scheduled:
        raise Refusal(
            f"No pipeline '{name}' is scheduled in {folder.path}; {suggest_nearest(name, roster.scheduled)}",
            hint=f"See the schedule:  wherry schedule {folder.path} --plan",
        )
    open_marks(folder.path).pause(name, why, now)


def _marks_folder(directory: Path) -> Path:
    return directory / ".wherry" / "schedule"


@dataclass(frozen=True, kw_only=True)
class ScheduleCatalog:
    """What can be scheduled, and what cannot."""

    scheduled: Mapping[str, Definition] = field(default_factory=dict)
    """By the names of the pipelines."""
    by_hand: Mapping[str, str] = field(default_factory=dict)
    """The files of definitions without a schedule, by the names of the pipelines."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """What is wrong, by file."""

    @staticmethod
    def of(found: Found) -> ScheduleCatalog:
        """Of these files: two pipelines of one name, and an `after` that leads nowhere or in a circle, are broken."""
        broken = {file: each for file, each in found.items() if isinstance(each, str)}
        whole = {file: each for file, each in sorted(found.items()) if not isinstance(each, str)}
        first: dict[str, str] = {}
        for file, each in whole.items():
            name = each.pipeline.name
            if name in first:
                broken[file] = f"{name} is the name of the pipeline in {first[name]} already"
            first.setdefault(name, file)
        schedules = {name: whole[file].pipeline.schedule for name, file in first.items()}
        for name, file in first.items():
            wrong = _explain_wait(name, schedules)
            if wrong:
                broken[file] = f"schedule.after: {wrong}"
        good = {name: whole[file] for name, file in first.items() if file not in broken}
        return ScheduleCatalog(
            scheduled={name: each for name, each in good.items() if each.pipeline.schedule is not None},
            by_hand={name: first[name] for name, each in good.items() if each.pipeline.schedule is None},
            broken=broken,
        )


def _explain_wait(name: str, schedules: Mapping[str, ScheduleOptions | None]) -> str:
    """Why the pipeline would wait for ever; nothing if it does not."""
    way = [name]
    while (schedule := schedules[way[-1]]) is not None and (other := schedule.after) is not None:
        if other in way:
            return f"it waits for itself: {' → '.join([*way, other])}" if other == name else ""
        if schedules.get(other) is None:
            break
        way.append(other)
    if len(way) > 1 or schedule is None or other is None:
        return ""
    if other in schedules:
        return f"{other} has no schedule, so it never runs here"
    known = [each for each in schedules if each != name]
    return (
        f"there is no pipeline '{other}' here; {suggest_nearest(other, known)}" if known else f"'{other}' is not here"
    )
