"""Checks whether the executors of a cluster can run a pipeline: what they lack, and how to correct it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NoAnswer
from dataclasses import replace

from destinations.delta.delta import Delta
from origins.errors import WherryError, has_condition, list_spark_errors
from origins.files.file_systems import is_local
from origins.lazy import SparkSession
from origins.spark_private import count_executors
from origins.spark_settings import DRIVER_HOST
from origins.spark_versions import DELTA, find_parts, is_connect
from runners.command_line.doctor import DoctorCheck, make_problem
from runners.model.spec import PipelineSpec
from runners.model.text import summarise_error
from runners.operations.pipeline_access import open_session
from runners.running.local_folders import list_unshared
from runners.spark.executors import ask_executors, ask_python, try_store
from runners.spark.session import find_master, is_here
from runners.spark.session_pool import cancel, tag_work
from runners.spark.start import find_executor_python
from runners.state.location import find_dlq
from stages.capabilities import WorksInPython

PATIENCE = 60.0
"""The seconds that the first executor may need to start."""

_FAST = 5.0
"""The seconds by which a clock may differ."""

_ALL_EXECUTORS = "spark.scheduler.minRegisteredResourcesRatio"
"""Makes the first task wait up to half a minute for all requested executors, so that each is examined."""

_GROUP = "wherry-doctor"


def examine_cluster(pipeline: PipelineSpec) -> Iterator[DoctorCheck]:
    """Check what the executors need for this pipeline. Starts its Spark."""
    patient = {_ALL_EXECUTORS: "1.0", **pipeline.spark.conf}
    try:
        spark = open_session(replace(pipeline, spark=replace(pipeline.spark, conf=patient)))
    except WherryError as error:
        yield make_problem("Spark", error.message, error.hint)
        return
    if is_connect(spark) or is_here(spark):
        found = "Spark Connect does not name its executors" if is_connect(spark) else "Spark is on this machine"
        advice = "Set spark: {master: spark://HOST:7077} in the definition, or start the run with spark-submit."
        yield make_problem("Cluster", found, advice)
        return
    come = _await_executors(spark)
    yield come
    if come.state == "ok":
        yield from _check_delta_and_clocks(spark)
        yield from _check_python(pipeline, spark)
        yield from _check_folders(pipeline, spark)
        yield from _check_stores(pipeline, spark)


def _await_executors(spark: SparkSession) -> DoctorCheck:
    master = find_master(spark)

    def count() -> int:
        with tag_work(spark, _GROUP):
            return spark.range(0, 1, 1, 1).where("rand() >= 0").count()

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(count)
        try:
            first.result(PATIENCE)
        except NoAnswer:
            cancel(spark, _GROUP)
            found = f"no executor of {master} took a task within {PATIENCE:.0f} s"
            advice = (
                "Check in the cluster's own page that it has free cores, and as much memory as spark.executor.memory. "
                f"Executors also have to reach the driver at {DRIVER_HOST.read(spark, 'this machine')}: "
                "set spark.driver.host to an address that they can reach."
            )
            return make_problem("Cluster", found, advice)
        except list_spark_errors() as error:
            return make_problem("Cluster", f"a task failed: {summarise_error(error)}", "Read the executors' logs.")
    count_now = count_executors(spark)
    return DoctorCheck(name="Cluster", state="ok", found=f"{master} has {count_now} executor{'s'[: count_now != 1]}")


def _check_delta_and_clocks(spark: SparkSession) -> Iterator[DoctorCheck]:
    try:
        facts = ask_executors(spark)
    except list_spark_errors() as error:
        yield make_problem("Delta", f"a task failed: {summarise_error(error)}", "Read the executors' logs.")
        return
    for each in facts:
        if not each.delta:
            delta = find_parts().delta
            advice = f"Put {delta} on the class path of all executors: in spark.jars.packages, or in the image of each."
            yield make_problem("Delta", f"{each.host} has no Delta; the driver has {DELTA}", advice)
        elif each.delta != DELTA:
            advice = f"Remove the other JARs of Delta from {each.host}; Wherry ships {DELTA}."
            yield make_problem("Delta", f"{each.host} has Delta {each.delta}; the driver has {DELTA}", advice)
    if all(each.delta == DELTA for each in facts):
        yield DoctorCheck(name="Delta", state="ok", found=f"executors have Delta {DELTA}, and Java {facts[0].java}")
    wrong = [each for each in facts if abs(each.clock) > _FAST]
    for each in wrong:
        found = f"the clock of {each.host} is {abs(each.clock):.0f} s {'ahead' if each.clock > 0 else 'behind'}"
        yield make_problem("Clock", found, "Let all machines of the cluster, and this one, use one time server (NTP).")
    if not wrong:
        yield DoctorCheck(name="Clock", state="ok", found="no executor's clock differs by more than 5 s")


def _check_python(pipeline: PipelineSpec, spark: SparkSession) -> Iterator[DoctorCheck]:
    every = [stage for origin in pipeline.every_origin for stage in origin.stages]
    every += [*pipeline.stages, *(stage for each in pipeline.every_destination for stage in each.stages)]
    workers = [stage for stage in every if isinstance(stage, WorksInPython)]
    if not workers:
        yield DoctorCheck(name="Python", state="not needed", found="no stage works in Python")
        return
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    program = find_executor_python(pipeline.spark.settings)
    choose = (
        f"Install Python {ours} there, and name it: spark: {{conf: {{spark.pyspark.python: /path/to/python{ours}}}}}"
    )
    try:
        packages = {"pyarrow"}.union(*[stage.list_worker_packages() for stage in workers])
        facts = ask_python(spark, packages)
    except WherryError as error:
        yield make_problem("Python", error.message, error.hint)
        return
    except list_spark_errors(RuntimeError) as error:
        if has_condition(error, "PYTHON_VERSION_MISMATCH") or "PYTHON_VERSION_MISMATCH" in str(error):
            yield make_problem("Python", f"{program} of an executor is not Python {ours}, as the driver's is", choose)
        else:
            yield make_problem("Python", f"an executor cannot start {program}: {summarise_error(error)}", choose)
        return
    for each in facts:
        if "version" not in each:
            yield make_problem("Python", f"{program} of {each['host']} is missing, or is not Python {ours}", choose)
        elif each["missing"]:
            names = " ".join(each["missing"])
            install = f"Install them there:  {each['program']} -m pip install {names}"
            yield make_problem("Python", f"{each['host']} lacks {names.replace(' ', ', ')}", install)
    if not any(each.get("missing", True) for each in facts):
        found = f"executors have Python {facts[0]['version']}, and {', '.join(sorted(packages))}"
        yield DoctorCheck(name="Python", state="ok", found=found)


def _check_folders(pipeline: PipelineSpec, spark: SparkSession) -> Iterator[DoctorCheck]:
    unseen = list_unshared(pipeline, spark)
    for each in unseen:
        found = f"executors do not see {each.path} of this machine, which is {each.what}"
        yield make_problem("Folders", found, f"Write  {each.example}  or use a disk that all machines share.")
    if not unseen:
        yield DoctorCheck(name="Folders", state="ok", found="executors see all folders that the definition names")


def _check_stores(pipeline: PipelineSpec, spark: SparkSession) -> Iterator[DoctorCheck]:
    """Check whether executors can write and read next to each destination in a store, and next to the state."""
    places = {
        each.name or "": each.path for each in pipeline.every_destination if isinstance(each, Delta) and each.path
    }
    dlq, _ = find_dlq(pipeline)  # it is in the state by default
    if isinstance(dlq, Delta) and dlq.path:
        places["dlq"] = dlq.path
    for name, path in places.items():
        if is_local(path):
            continue
        folder = path.rstrip("/").rpartition("/")[0]
        why = try_store(spark, folder)
        if why:
            advice = "Check the address, the JARs (spark.packages), and the credentials (spark.conf) of the executors."
            yield make_problem("Store", f"executors cannot write below {folder}, for '{name}': {why}", advice)
        else:
            yield DoctorCheck(name="Store", state="ok", found=f"executors write and read below {folder}, for '{name}'")
