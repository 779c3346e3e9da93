"""A schedule as a person reads it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from origins.quantities import seconds
from runners.pipeline import ScheduleOptions
from runners.schedules.timetable import timetable_of, zone_of


def in_words(options: ScheduleOptions) -> str:
    """When it runs, and what becomes of what it misses."""
    overlap = {"skip": "is left out", "queue": "waits for it"}[options.on_overlap]
    missed = {"none": "are left out", "once": "become one run", "all": "are all carried"}[options.catch_up]
    return (
        f"`wherry schedule` runs it {when(options)}. A run that is due while another has not ended {overlap}; "
        f"those that were due in a pause {missed}."
    )


def when(options: ScheduleOptions) -> str:
    """When it runs, as `every 5m`."""
    at = f"every {options.every}" if options.every is not None else f"at {options.cron!r} ({options.time_zone})"
    if options.after is not None:
        at = f"after each run of {options.after} that succeeded"
    return f"{at}, each up to {options.jitter} later" if seconds(options.jitter) else at


def told(options: ScheduleOptions, due: Sequence[datetime]) -> Sequence[str]:
    """The next times, as the clocks of its zone show them."""
    shown = [moment.astimezone(zone_of(options.time_zone)).strftime("%a %Y-%m-%d %H:%M:%S %z") for moment in due]
    return [f"Next: {', '.join(shown)}"] if shown else []


def due_times(options: ScheduleOptions, moment: datetime, count: int) -> Sequence[datetime]:
    """The next so many times; none for a pipeline that waits for another."""
    timetable = timetable_of(options)
    return [] if timetable is None else timetable.following(moment, count)
