"""A scheduler of a directory, made ready: on the Spark that there is, or one that is started."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from runners.definitions.definition import Definition, load
from runners.events import Listener
from runners.schedules.carriers import CarrierThreads
from runners.schedules.definitions_folder import DefinitionsFolder
from runners.schedules.roster import Roster
from runners.schedules.schedule_plan import marks_of
from runners.schedules.scheduled_run import carrying, session_for
from runners.schedules.scheduler import Scheduler


def folder_of(
    directory: str | Path,
    *,
    variables: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    needs_secrets: bool = True,
) -> DefinitionsFolder:
    """The definitions of a directory, with these values put in for `${NAME}` and `${secret:NAME}`."""

    def read(file: Path) -> Definition:
        return load(file, variables=variables, secrets=secrets, needs_secrets=needs_secrets)

    return DefinitionsFolder(path=Path(directory), load=read)


def scheduler_of(
    directory: str | Path,
    *,
    variables: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    at_once: int | None = None,
    hears: Callable[[Definition], Sequence[Listener]] = lambda _: (),
) -> Scheduler:
    """A scheduler of this directory, whose `run` goes on until its `stop` is called, from another thread.

    `at_once` is how many pipelines run at a time (default: the cores), and `hears` who listens to the runs of each.
    Raises `Refusal` where there is no directory, or its definitions cannot share one Spark.
    """
    folder = folder_of(directory, variables=variables, secrets=secrets)
    roster = Roster.of(folder.open())
    marks = marks_of(folder.path)
    carriers = CarrierThreads(carrying(session_for(list(roster.scheduled.values())), hears))
    return Scheduler(folder=folder, marks=marks, carriers=carriers, at_once=at_once or os.cpu_count() or 1)
