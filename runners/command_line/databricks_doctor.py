"""Checks whether a notebook or a job of Databricks can run a pipeline: what it lacks, and how to correct it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from destinations.delta.delta import Delta as DeltaDestination
from origins.delta import Delta as DeltaOrigin
from origins.errors import WherryError, list_spark_errors
from origins.lazy import SparkSession
from origins.spark_versions import (
    Platform,
    can_call_arrow_functions,
    check_given,
    check_pyspark_of_databricks,
    describe_runtime,
    find_platform,
    find_version,
    is_connect,
)
from origins.store_access import is_store_url
from runners.command_line.doctor import DoctorCheck, make_problem
from runners.model.spec import PipelineSpec, SchemaState
from runners.model.text import summarise_error
from runners.spark.own_session import make_own_session, put_settings_back
from runners.spark.session import list_texts, obtain
from runners.state.location import StateLocation
from runners.state.spark_ledger import quote_table

VOLUMES = "/Volumes/"
_GRANT = "Ask the owner for it:  GRANT"


def examine_databricks(pipeline: PipelineSpec | None, spark: SparkSession | None = None) -> Iterator[DoctorCheck]:
    """Check what a run needs on Databricks, and what the pipeline needs there. It uses the session that is there."""
    try:
        if spark is None:
            check_pyspark_of_databricks()
            spark = obtain()
        check_given(spark)
    except WherryError as error:
        yield make_problem("Spark", error.message, error.hint)
        return
    except list_spark_errors() as error:
        yield make_problem("Spark", f"no session answers: {summarise_error(error)}", "Attach the notebook again.")
        return
    platform = find_platform(spark)
    if platform is Platform.ANY:
        advice = "Call it in a cell of a notebook, or as a task of a job."
        yield make_problem("Platform", "this process does not run on Databricks", advice)
        return
    yield DoctorCheck(name="Platform", state="ok", found=f"{platform.value}, version {describe_runtime()}")
    kind = "a client of Spark Connect" if is_connect(spark) else "classic Spark"
    yield DoctorCheck(name="Spark", state="ok", found=f"Spark {spark.version}; pyspark {find_version()} is {kind}")
    yield from check_client(spark)
    if pipeline is not None:
        yield from check_tables(pipeline, spark)
        yield from check_volumes(list_volume_paths(pipeline))


def check_client(spark: SparkSession) -> Iterator[DoctorCheck]:
    """Name what the client lacks. A run does without it."""
    try:
        with put_settings_back():
            alone = make_own_session(spark) is spark
    except WherryError as error:
        yield make_problem("Client", error.message, error.hint)
        return
    if alone:
        found = "it makes no other session; runs share this one, and put its settings back"
        yield DoctorCheck(name="Client", state="ok", found=found)
    if not can_call_arrow_functions():
        found = "it has no functions over Arrow; all columns pass through Python functions, which is slower"
        yield DoctorCheck(name="Client", state="ok", found=found)


def check_tables(pipeline: PipelineSpec, spark: SparkSession) -> Iterator[DoctorCheck]:
    """Check the rights on the schema of the state, on the origins' tables, and on those of the destinations."""
    if isinstance(pipeline.state, SchemaState):
        yield _try_schema(spark, pipeline.state.schema)
    elif not is_store_url(str(pipeline.state)):
        advice = "Write in the definition:  state: {schema: CATALOG.SCHEMA}"
        yield make_problem("State", f"{pipeline.state} is a folder, and folders there cannot hold a state", advice)
    for origin in pipeline.every_origin:
        if isinstance(origin, DeltaOrigin) and origin.table:
            yield _try_table(spark, origin.table, "SELECT")
    for destination in (*pipeline.every_destination, *pipeline.dlq.given_destinations):
        if isinstance(destination, DeltaDestination) and destination.table:
            yield _try_table(spark, destination.table, "MODIFY, SELECT", missing="the first run creates it")


def _try_schema(spark: SparkSession, schema: str) -> DoctorCheck:
    """Check that tables can be made in the schema. One is made and dropped."""
    table = quote_table(f"{schema}.wherry_doctor_{uuid.uuid4().hex}")
    try:
        spark.sql(f"CREATE TABLE {table} (id INT) USING delta").collect()
        spark.sql(f"DROP TABLE {table}").collect()
    except list_spark_errors() as error:
        advice = f"{_GRANT} USE SCHEMA, CREATE TABLE ON SCHEMA {schema}"
        return make_problem("State", f"no table can be made in {schema}: {summarise_error(error)}", advice)
    return DoctorCheck(name="State", state="ok", found=f"tables can be made in {schema}")


def _try_table(spark: SparkSession, table: str, rights: str, *, missing: str = "") -> DoctorCheck:
    """Check that the table can be read. A right to write is not tried, since that would write."""
    try:
        if missing and not spark.catalog.tableExists(table):
            return DoctorCheck(name="Table", state="ok", found=f"{table} does not exist; {missing}")
        spark.sql(f"SELECT * FROM {quote_table(table)} LIMIT 0").collect()
    except list_spark_errors() as error:
        advice = f"{_GRANT} {rights} ON TABLE {table}"
        return make_problem("Table", f"{table} cannot be read: {summarise_error(error)}", advice)
    return DoctorCheck(name="Table", state="ok", found=f"{table} can be read")


def list_volume_paths(pipeline: PipelineSpec) -> Mapping[str, bool]:
    """Return the paths in volumes that the definition names, and whether a run writes there."""
    origins = [origin for origin in pipeline.every_origin if getattr(origin, "after", "keep") == "keep"]
    read = [getattr(origin, "path", None) for origin in origins]
    written = list_texts((pipeline.every_origin, pipeline.stages, pipeline.every_destination, pipeline.dlq))
    written = [*written, str(StateLocation.of(pipeline).volume)]
    return {text: text not in read for text in written if text.startswith(VOLUMES)}


def check_volumes(paths: Mapping[str, bool], root: str = VOLUMES) -> Iterator[DoctorCheck]:
    """Check the volumes of these paths, which are below the root. True means that a run writes there."""
    volumes: dict[Path, bool] = {}
    for path, is_written in paths.items():
        volume = Path(root, *path.removeprefix(root).split("/")[:3])
        volumes[volume] = is_written or volumes.get(volume, False)
    for volume, is_written in volumes.items():
        name = ".".join(volume.parts[-3:])
        try:
            os.listdir(volume)
            if is_written:
                _write_whole_file(volume / f"wherry-doctor-{uuid.uuid4().hex}")
        except OSError as error:
            rights = "READ VOLUME, WRITE VOLUME" if is_written else "READ VOLUME"
            what = "written" if is_written else "read"
            found = f"{volume} cannot be {what}: {error.strerror or error}"
            yield make_problem("Volume", found, f"{_GRANT} {rights} ON VOLUME {name}")
        else:
            how = "read and written" if is_written else "read"
            yield DoctorCheck(name="Volume", state="ok", found=f"{volume} can be {how}")


def _write_whole_file(file: Path) -> None:
    try:
        file.write_text("a")
    finally:
        file.unlink(missing_ok=True)
