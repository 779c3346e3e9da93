"""The definitions of a directory taken together: which of them can be scheduled, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from runners.definitions.definition import Definition
from runners.definitions.problems import nearest
from runners.pipeline import ScheduleOptions

Found = Mapping[str, "Definition | str"]
"""The definitions by the names of their files; in place of a broken one what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class Roster:
    """What can be scheduled, and what cannot."""

    scheduled: Mapping[str, Definition] = field(default_factory=dict)
    """By the names of the pipelines."""
    by_hand: Mapping[str, str] = field(default_factory=dict)
    """The files of definitions without a schedule, by the names of the pipelines."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """What is wrong, by file."""

    @staticmethod
    def of(found: Found) -> Roster:
        """Of these files: two pipelines of one name, and an `after` that leads nowhere or in a circle, are broken."""
        broken = {file: each for file, each in found.items() if isinstance(each, str)}
        whole = {file: each for file, each in sorted(found.items()) if not isinstance(each, str)}
        first: dict[str, str] = {}
        for file, each in whole.items():
            name = each.pipeline.name
            if name in first:
                broken[file] = f"{name} is what the pipeline in {first[name]} is called already"
            first.setdefault(name, file)
        schedules = {name: whole[file].pipeline.schedule for name, file in first.items()}
        for name, file in first.items():
            wrong = _wrong(name, schedules)
            if wrong:
                broken[file] = f"schedule.after: {wrong}"
        good = {name: whole[file] for name, file in first.items() if file not in broken}
        return Roster(
            scheduled={name: each for name, each in good.items() if each.pipeline.schedule is not None},
            by_hand={name: first[name] for name, each in good.items() if each.pipeline.schedule is None},
            broken=broken,
        )


def _wrong(name: str, schedules: Mapping[str, ScheduleOptions | None]) -> str:
    """Why the pipeline would wait for ever; nothing if it does not."""
    way = [name]
    while (other := _after(schedules[way[-1]])) is not None:
        if other in way:
            return f"it waits for itself: {' → '.join([*way, other])}" if other == name else ""
        if schedules.get(other) is None:
            return _nobody(other, name, schedules) if len(way) == 1 else ""
        way.append(other)
    return ""


def _nobody(other: str, name: str, schedules: Mapping[str, ScheduleOptions | None]) -> str:
    if other in schedules:
        return f"{other} has no schedule, so that nothing runs it here"
    known = [each for each in schedules if each != name]
    return f"there is no pipeline '{other}' here; {nearest(other, known)}" if known else f"'{other}' is not here"


def _after(schedule: ScheduleOptions | None) -> str | None:
    return schedule.after if schedule else None
