"""Which pipelines feed which others, by the tables and folders that one writes and another reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter

from destinations.destination import Destination
from origins.files.file_systems import is_local, without_scheme
from origins.files.listing import parse_pattern
from origins.origin import Origin
from origins.store_access import canonicalise
from runners.definitions.document import suggest_nearest
from runners.model.errors import Refusal
from runners.model.spec import PipelineSpec


@dataclass(frozen=True)
class PipelineGraph:
    """Pipelines by name, each with the pipelines that it reads from."""

    upstream: Mapping[str, Collection[str]]

    @staticmethod
    def of(pipelines: Mapping[str, PipelineSpec]) -> PipelineGraph:
        """Make the graph of these pipelines. A pipeline that reads its output does not wait for itself."""
        written = {name: list(list_written(each)) for name, each in pipelines.items()}
        read = {name: [_Wanted.of(place) for place in list_read(each)] for name, each in pipelines.items()}
        return PipelineGraph(
            {
                name: sorted(
                    other
                    for other in pipelines
                    if other != name and any(_feeds(place, wanted) for place in written[other] for wanted in read[name])
                )
                for name in pipelines
            }
        )

    def sort(self, names: Iterable[str]) -> Sequence[str]:
        """Return these pipelines, each after all pipelines that feed it, otherwise by name.

        Raise `Refusal` for a circle.
        """
        chosen = set(names)
        sorter = TopologicalSorter({name: sorted(chosen.intersection(self.upstream[name])) for name in sorted(chosen)})
        ordered: list[str] = []
        try:
            sorter.prepare()
        except CycleError as error:
            raise Refusal(
                f"These pipelines feed each other in a circle: {' → '.join(error.args[1])}.",
                hint="No order is right for all of them. Run them one by one, or change what one of them reads.",
            ) from error
        while sorter.is_active():
            ready = sorted(sorter.get_ready())
            ordered += ready
            sorter.done(*ready)
        return ordered

    def select(self, selectors: Sequence[str]) -> Collection[str]:
        """Return the pipelines that any selector means. Without a selector, return all.

        `name` means one pipeline, `name+` also all pipelines that it feeds, and `+name` also all pipelines that feed
        it. Raise `Refusal` for an unknown name.
        """
        words = [word for each in selectors for word in each.split()]
        if not words:
            return set(self.upstream)
        selected: set[str] = set()
        for word in words:
            name = word.strip("+")
            if name not in self.upstream:
                raise Refusal(f"There is no pipeline '{name}' here; {suggest_nearest(name, self.upstream)}")
            selected.add(name)
            if word.endswith("+"):
                selected |= _reach(name, lambda one: [other for other, by in self.upstream.items() if one in by])
            if word.startswith("+"):
                selected |= _reach(name, self.upstream.__getitem__)
        return selected


def _reach(name: str, step: Callable[[str], Collection[str]]) -> set[str]:
    """Return everything that can be reached from a pipeline by any number of steps."""
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        new = set(step(waiting.pop())) - reached
        reached |= new
        waiting += new
    return reached


def list_written(pipeline: PipelineSpec) -> Iterator[str]:
    """Yield the tables and folders that a pipeline writes. Its state is one of them, because the DLQ is in it."""
    yield from _list_places([*pipeline.every_destination, *pipeline.dlq.given_destinations])
    if isinstance(pipeline.state, str):
        yield _name_folder(pipeline.state)


def list_read(pipeline: PipelineSpec) -> Iterator[str]:
    """Yield the tables, folders and patterns of files that the pipeline's origins and lookups read."""
    ends: list[Origin | Destination] = [*pipeline.given_origins, *pipeline.destinations]
    yield from _list_places(
        [*pipeline.given_origins, *pipeline.stages, *(stage for end in ends for stage in end.stages)]
    )


def _list_places(components: Iterable[object]) -> Iterator[str]:
    for each in components:
        tables = [getattr(each, "table", None), *getattr(each, "tables", ())]
        yield from (_name_table(table) for table in tables if isinstance(table, str) and table)
        paths = [getattr(each, "path", None), getattr(each, "file", None), *getattr(each, "paths", ())]
        yield from (_name_folder(path) for path in paths if isinstance(path, str) and path)


def _name_table(name: str) -> str:
    """Return a table's name as `catalog.schema.table`. Missing parts are Spark's defaults."""
    parts = name.replace("`", "").lower().split(".")
    return ".".join([*["spark_catalog", "default"][: max(0, 3 - len(parts))], *parts])


def _name_folder(path: str) -> str:
    return os.path.abspath(without_scheme(path)) if is_local(path) else canonicalise(path).rstrip("/")


@dataclass(frozen=True)
class _Wanted:
    """A place where a pipeline reads. A place with a `/` may be a pattern, which needs a look at the disk."""

    place: str
    root: str = ""
    segments: Sequence[str] = ()

    @staticmethod
    def of(place: str) -> _Wanted:
        if "/" not in place:
            return _Wanted(place)
        pattern = parse_pattern(place)
        return _Wanted(place, pattern.root.rstrip("/"), pattern.segments)


def _feeds(written: str, read: _Wanted) -> bool:
    """Whether rows that are written in one place are found in the place where another pipeline reads.

    They are if it is the same place, a place below it, or a folder that a pattern fits.
    """
    if written == read.place or "/" not in written or "/" not in read.place:
        return written == read.place
    root, segments = read.root, read.segments
    if root == written or root.startswith(f"{written}/"):
        return True
    if not written.startswith(f"{root}/"):
        return False
    parts = written.removeprefix(f"{root}/").split("/")
    for part, segment in zip(parts, segments, strict=False):
        if segment == "**":
            return True
        if not fnmatchcase(part, segment):
            return False
    return len(parts) < len(segments)
