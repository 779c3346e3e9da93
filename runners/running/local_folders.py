"""The folders of this machine that a pipeline uses: whether executors see them, and which disk may be full."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from destinations.destination import Destination
from origins.files.file_systems import is_local, without_scheme
from origins.files.listing import parse_pattern
from origins.lazy import SparkSession
from origins.origin import Origin
from origins.spark_versions import is_connect
from runners.model.errors import Refusal
from runners.model.spec import PipelineSpec
from runners.spark.executors import list_unseen
from runners.spark.session import find_default_scheme, find_master, is_here, list_local_folders
from runners.state.location import StateLocation
from stages.stage import Stage


@dataclass(frozen=True, kw_only=True)
class NamedPlace:
    """A path of this machine that a definition names."""

    what: str
    """The part of the definition that names it."""
    path: str
    example: str
    """An example of a path in a store that all machines reach."""
    probe: Path | None
    """The folder or file that an executor looks for; None if nothing exists yet."""
    written: bool
    """Whether the run writes there."""


def check_shared(pipeline: PipelineSpec, spark: SparkSession) -> None:
    """Raises `Refusal` if executors do not see a folder of this machine that they must read or write.

    Wherry asks them once, and only if they are on other machines and the definition names such a folder. Executors see
    a folder on a shared disk.
    """
    unseen = list_unshared(pipeline, spark)
    if unseen:
        where = [f"{each.what} is {each.path}" for each in unseen]
        raise Refusal(
            f"The executors of {find_master(spark)} do not see folders of this machine: {', and '.join(where)}.",
            hint="Put them where all machines find them: into a store, or on a disk that they share. For example:\n"
            + "\n".join(f"{each.what:<14}{each.example}" for each in unseen),
        )


def list_unshared(pipeline: PipelineSpec, spark: SparkSession) -> Sequence[NamedPlace]:
    """Return the paths of this machine that executors must see and do not see."""
    if is_connect(spark) or is_here(spark):
        return []
    places = [each for each in list_places(pipeline) if each.path]
    state = [each for each in places if each.what == STATE]
    # with another default scheme, a path without a scheme is not on this machine
    if places != state and find_default_scheme(spark) != "file":
        places = [*state, *(each for each in places if each.path.startswith("file:"))]
    written = {each.probe for each in places if each.written and each.probe}
    read = {each.probe for each in places if not each.written and each.probe}
    unseen = list_unseen(spark, written, read) if written or read else set()
    return [each for each in places if each.probe in unseen]


STATE = "the state"


def list_places(pipeline: PipelineSpec) -> Iterator[NamedPlace]:
    """Yield the paths of this machine that a definition names."""
    directory, name = StateLocation.of(pipeline).directory, pipeline.name
    if directory is not None:
        yield _name_written(STATE, str(directory), f"state: s3://bucket/wherry/{name}")
    for destination in (*pipeline.every_destination, *pipeline.dlq.given_destinations):
        for path in _list_paths(destination):
            yield _name_written(
                f"'{destination.name or type(destination).__name__.lower()}'",
                path,
                f"path: s3a://bucket/{_get_end(path)}",
            )
        for stage in destination.stages:
            yield from _name_read(stage)
    for origin in pipeline.every_origin:
        yield from _name_read(origin)
        for stage in origin.stages:
            yield from _name_read(stage)
    for stage in pipeline.stages:
        yield from _name_read(stage)


def _name_written(what: str, path: str, example: str) -> NamedPlace:
    place = Path(os.path.abspath(without_scheme(path)))
    nearest = next(folder for folder in (place, *place.parents) if folder.is_dir())
    return NamedPlace(what=what, path=path, example=example, probe=nearest, written=True)


def _name_read(part: Origin | Stage) -> Iterator[NamedPlace]:
    for path in _list_paths(part):
        files = _list_files(Path(without_scheme(parse_pattern(path).root)))
        probe = next((file for file in files if file.is_file() and file.stat().st_size), None)
        yield NamedPlace(
            what=f"'{part.name}'" if part.name else "the origin",
            path=path,
            example=f"path: s3a://bucket/{_get_end(path)}",
            probe=probe,
            written=False,
        )


def _list_files(root: Path) -> Iterator[Path]:
    """Yield the files below a folder, without those that Spark ignores because of their names."""
    for folder, below, names in os.walk(root):
        below[:] = (name for name in below if name[0] not in _HIDES)
        yield from (Path(folder, name) for name in sorted(names) if name[0] not in _HIDES)


_HIDES = "._"
"""Spark ignores files and folders whose names begin with one of these characters."""
_PATHS = ("path", "paths", "file")
"""The options of kinds that give the place of rows."""


def _list_paths(part: Origin | Stage | Destination) -> Iterator[str]:
    for each in fields(part):
        if each.name in _PATHS and each.metadata.get("path"):
            value = getattr(part, each.name)
            yield from (path for path in ([value] if isinstance(value, str) else value or ()) if is_local(path))


def _get_end(path: str) -> str:
    """Return the last two parts of a path."""
    return "/".join(without_scheme(path).rstrip("/").split("/")[-2:]).lstrip("/")


def list_written_folders(
    state: StateLocation, destinations: Mapping[str, Destination], spark: SparkSession | None = None
) -> dict[str, str]:
    """Return the folders of this machine where a run writes, by a description of their content.

    With `spark`, they include the folders of Spark's temporary files.
    """
    places = {"the state": str(state.directory)} if state.directory else {}
    places |= {"rows that wait for delivery": str(state.volume)} if state.volume else {}
    places |= {f"'{name}'": each.place for name, each in destinations.items() if getattr(each, "path", None)}
    places |= {"temporary files": tempfile.gettempdir()}
    of_spark = list_local_folders(spark) if spark is not None else ()
    return {**places, **{f"Spark's temporary files in {folder}": folder for folder in of_spark}}
