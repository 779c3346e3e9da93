"""The definitions of a directory together, and what a scheduler would do with them, without starting anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from origins.batch import JSON
from runners.definitions.definition import Definition, DefinitionsFolder, Found
from runners.definitions.document import suggest_nearest
from runners.model.errors import Refusal
from runners.model.spec import ScheduleOptions
from runners.model.timetable import describe_times, list_due_times
from runners.schedules.run_marks import RunMarks


def open_marks(directory: Path) -> RunMarks:
    """Return the marks that schedulers of this directory share. Raise `Refusal` if they cannot be written."""
    return RunMarks(_marks_folder(directory))


def plan(folder: DefinitionsFolder, now: datetime) -> dict[str, JSON]:
    """Return what a scheduler would do with these definitions.

    `{"scheduled": [{"pipeline", "file", "when", "group", "next", "paused"}], "by_hand": {name: file}, "broken": {…}}`

    The pipeline that is due first comes first. `next` has three moments. Raise `Refusal` if the directory does not
    exist.
    """
    schedule_catalog = ScheduleCatalog.of(folder.open())
    marks = open_marks(folder.path) if _marks_folder(folder.path).exists() else None
    scheduled: list[Mapping[str, JSON]] = []
    for name, definition in sorted(schedule_catalog.scheduled.items()):
        options = definition.pipeline.schedule
        assert options is not None
        mark = marks.get(name) if marks else None
        paused = mark.paused if mark else None
        due = [] if paused is not None else list_due_times(options, now, 3)
        scheduled.append(
            {
                "pipeline": name,
                "file": name_file(definition),
                "when": describe_times(options, definition.pipeline.run_options.group),
                "group": definition.pipeline.run_options.group,
                "next": [moment.isoformat() for moment in due],
                "paused": paused,
            }
        )
    scheduled.sort(key=lambda each: each["next"][0] if each["next"] else "~")
    by_hand = {name: name_file(each) for name, each in schedule_catalog.by_hand.items()}
    return {"scheduled": scheduled, "by_hand": by_hand, "broken": dict(schedule_catalog.broken)}


def pause(folder: DefinitionsFolder, name: str, why: str | None, now: datetime) -> None:
    """Let no run of a pipeline begin, for this reason. With None, let runs begin again.

    A running scheduler notices the change. Raise `Refusal` for a name that is not scheduled there.
    """
    schedule_catalog = ScheduleCatalog.of(folder.open())
    if name not in schedule_catalog.scheduled:
        raise Refusal(
            f"No pipeline '{name}' is scheduled in {folder.path}; {suggest_nearest(name, schedule_catalog.scheduled)}",
            hint=f"See the schedule:  wherry schedule {folder.path} --plan",
        )
    open_marks(folder.path).pause(name, why, now)


def name_file(definition: Definition) -> str:
    """Return the name of the file of a definition, or the name of a pipeline that was made in Python."""
    return definition.path.name if definition.path else definition.pipeline.name


def _marks_folder(directory: Path) -> Path:
    return directory / ".wherry" / "schedule"


@dataclass(frozen=True, kw_only=True)
class ScheduleCatalog:
    """The pipelines that can be scheduled, and the definitions that cannot."""

    scheduled: Mapping[str, Definition] = field(default_factory=dict)
    """The definitions by the names of their pipelines."""
    by_hand: Mapping[str, Definition] = field(default_factory=dict)
    """The definitions without a schedule, by the names of their pipelines."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with each broken definition, by file."""

    @property
    def definitions(self) -> Mapping[str, Definition]:
        """All definitions that can be used, by the names of their pipelines."""
        return {**self.scheduled, **self.by_hand}

    @staticmethod
    def of(found: Found) -> ScheduleCatalog:
        """Make the catalog of these files.

        The second of two pipelines with the same name is broken. An `after` that leads nowhere or in a circle is broken
        too.
        """
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
            by_hand={name: each for name, each in good.items() if each.pipeline.schedule is None},
            broken=broken,
        )


def _explain_wait(name: str, schedules: Mapping[str, ScheduleOptions | None]) -> str:
    """Return why the pipeline would wait without end, or an empty text if it would not."""
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
