"""Which Spark this is: whose it is, its version, the JARs that belong to it, and what only some versions have.

Like the functions of stages, `make_arrow_schema` is sent to Spark's workers by value.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import logging
import os
import re
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from origins.errors import WherryError, can_name_conditions
from origins.functions import ship_modules
from origins.lazy import Column, F, LazyModule, T
from origins.names import quote_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.pandas import functions as arrow_functions
    from pyspark.sql.pandas import types as arrow_types
else:
    arrow_functions = LazyModule("pyspark.sql.pandas.functions")
    arrow_types = LazyModule("pyspark.sql.pandas.types")

log = logging.getLogger("wherry")


class Platform(Enum):
    """What decides how Wherry may use a session that it did not start."""

    ANY = "no platform"
    DEDICATED = "a dedicated cluster of Databricks"
    STANDARD = "a standard cluster of Databricks"
    SERVERLESS = "serverless compute of Databricks"


def is_on_databricks() -> bool:
    """Whether this process runs on Databricks, where a session is there and no JVM may be started."""
    return bool(os.environ.get(_RUNTIME))


def find_platform(spark: SparkSession) -> Platform:
    """Return the platform of this process. Its session distinguishes the two kinds of clusters."""
    if not is_on_databricks():
        return Platform.ANY
    if os.environ[_RUNTIME].startswith("client."):
        return Platform.SERVERLESS
    return Platform.STANDARD if is_connect(spark) else Platform.DEDICATED


def describe_runtime() -> str:
    """Return the version of the runtime or of the serverless environment; empty elsewhere."""
    return os.environ.get(_RUNTIME, "")


def check_pyspark_of_databricks() -> None:
    """Raise `UnsupportedSpark` if pyspark was installed on Databricks. It hides the pyspark of Databricks."""
    if not is_on_databricks():
        return
    import importlib.metadata

    try:
        installed = importlib.metadata.version("pyspark")
        own = importlib.util.find_spec("pyspark.dbutils")
    except ModuleNotFoundError:  # nobody has installed one
        return
    if own is not None:
        return
    raise UnsupportedSpark(
        f"pyspark {installed} was installed here, and hides the pyspark of Databricks.",
        hint='Restart the compute, and install Wherry without "[spark]":  %pip install wherry',
    )


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a Spark Connect client."""
    return any("pyspark.sql.connect" in each.__module__ for each in type(spark).__mro__)


_RUNTIME = "DATABRICKS_RUNTIME_VERSION"
"""The variable that Databricks sets for each process of a notebook or a job.

It is the runtime's version, such as `17.3`, or the version of a serverless environment, such as `client.4.9`.
"""


DELTA = "4.4.0"
"""The version of Delta that Wherry starts. It has a JAR for each known Spark."""


@dataclass(frozen=True, kw_only=True)
class SparkParts:
    """What belongs to one version of Spark."""

    delta: str
    """The package of Delta."""
    hadoop: str
    """The version of its Hadoop, and so of the connectors to stores."""
    sdk: str
    """The version of Amazon's libraries with which this Hadoop was built."""
    kafka: str
    """The package with which Spark reads Kafka. It is the same for all fixes of this Spark, so its JARs have sums."""
    checkpoints: str
    """The class that writes checksums and checkpoints on a local disk without a process for each file."""


_STREAMING = "org.apache.spark.sql.execution.streaming"
_PARTS = {
    spark: SparkParts(
        delta=f"io.delta:delta-spark_{spark}_2.13:{DELTA}",
        hadoop=hadoop,
        sdk=sdk,
        kafka=f"org.apache.spark:spark-sql-kafka-0-10_2.13:{kafka}",
        checkpoints=f"{_STREAMING}{folder}.FileSystemBasedCheckpointFileManager",
    )
    for spark, hadoop, sdk, kafka, folder in (
        ("4.0", "3.4.1", "2.24.8", "4.0.0", ""),
        ("4.1", "3.4.2", "2.29.52", "4.1.1", ".checkpointing"),
        ("4.2", "3.5.0", "2.35.4", "4.2.0", ".checkpointing"),
    )
}
KNOWN = tuple(_PARTS)
"""The versions of Spark that Wherry knows, the oldest first."""
NAMED = f"{', '.join(KNOWN[:-1])} or {KNOWN[-1]}"


class UnsupportedSpark(WherryError):
    """This version of Spark is too old, or newer than the Delta that belongs to it."""

    code = "VERSION"


def find_version() -> str:
    """Return the version of the pyspark that Python imports here; empty without pyspark. Import nothing."""
    loaded = getattr(sys.modules.get("pyspark"), "__version__", None)
    if loaded is not None:
        return str(loaded)
    found = importlib.util.find_spec("pyspark")
    file = Path(found.origin).with_name("version.py") if found and found.origin else None
    written = re.search(r"""__version__.*=\s*["'](.+?)["']""", file.read_text()) if file and file.exists() else None
    return written[1] if written else ""


def find_parts() -> SparkParts:
    """Return what belongs to the installed pyspark; for another version, what belongs to the newest known one."""
    return _PARTS.get(shorten_version(find_version()), _PARTS[KNOWN[-1]])


def find_kafka_package() -> str:
    """Return the package with which Spark reads Kafka."""
    return find_parts().kafka


def shorten_version(version: str) -> str:
    """Return the first two numbers of a version."""
    return ".".join(version.split(".")[:2])


def check_start() -> None:
    """Raise `UnsupportedSpark` if Wherry cannot start the Spark that is installed here."""
    version = find_version()
    problem = describe_misfit(version) if version else ""
    if problem:
        raise UnsupportedSpark(f"{problem}.", hint='Install a suitable version:  pip install "wherry[spark]"')


def describe_misfit(version: str) -> str:
    """Return why Delta does not belong to this pyspark, or to the Spark that starts; empty if all belong together."""
    short = shorten_version(version)
    if short not in KNOWN:
        return f"pyspark {version} is installed, but Delta {DELTA} needs Spark {NAMED}{_note_newer(version)}"
    started = _find_started_version()
    if shorten_version(started or version) != short:
        return f"pyspark {version} is installed, but SPARK_HOME starts Spark {started}"
    return ""


def _note_newer(version: str) -> str:
    return f"; Delta does not support Spark {shorten_version(version)} yet" if is_newer(version) else ""


def is_newer(version: str) -> bool:
    """Return whether a version is newer than those that Wherry knows."""
    return _read_numbers(version) > _read_numbers(KNOWN[-1])


def _read_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _find_started_version() -> str:
    """Return the version of the Spark in SPARK_HOME, which pyspark starts; empty without one."""
    home = os.environ.get("SPARK_HOME")
    jars = sorted(Path(home, "jars").glob("spark-core_*.jar")) if home else []
    return jars[0].stem.rpartition("-")[2] if jars else ""


def check_client() -> None:
    """Raise `UnsupportedSpark` if the pyspark here is older than Spark 4.0."""
    if not can_name_conditions():
        raise _refuse_old(find_version())


def check_given(spark: SparkSession) -> None:
    """Raise `UnsupportedSpark` if a given Spark is older than 4.0. Warn once if it is newer than those that are known.

    Databricks has a Delta of its own, so a newer Spark is no problem there.
    """
    if spark in _CHECKED:
        return
    version = spark.version
    if _read_numbers(version) < _read_numbers(KNOWN[0]):
        raise _refuse_old(version)
    if is_newer(version) and not is_on_databricks():
        log.warning("This is Spark %s, and Wherry knows Spark %s%s.", version, NAMED, _note_newer(version))
    _CHECKED.add(spark)


_CHECKED: weakref.WeakSet[object] = weakref.WeakSet()
"""The sessions whose server was asked for its version."""


def _refuse_old(version: str) -> UnsupportedSpark:
    return UnsupportedSpark(
        f"This is Spark {version}, and Wherry needs Spark {KNOWN[0]} or newer.",
        hint="On Databricks, use runtime 17.3 LTS, serverless environment 4, or newer ones.",
    )


def make_arrow_schema(schema: T.StructType) -> pa.Schema:
    """Return the columns as Arrow has them. Moments are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in inspect.signature(to_arrow_schema).parameters:  # before 4.2 moments are in UTC by default
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


def read_arrow_schema(schema: pa.Schema) -> T.StructType:
    """Return Spark's types for the columns. A moment without a zone is a `timestamp_ntz`."""
    return arrow_types.from_arrow_schema(schema, prefer_timestamp_ntz=True)  # before 4.2 it is not the default


def read_arrow_type(kind: pa.DataType) -> T.DataType:
    """Return Spark's type. A moment without a zone is a `timestamp_ntz`."""
    return arrow_types.from_arrow_type(kind, prefer_timestamp_ntz=True)


ArrowFunction = Callable[..., Iterator["pa.Array"]]
"""A function over the values of one or more columns. Its answers, put together, have one value for each row."""


def call_in_workers(
    frame: DataFrame, name: str, function: ArrowFunction, given: Mapping[str, Column], kind: T.StructType
) -> tuple[DataFrame, Column]:
    """Return a frame, and in it the column with the answers of the function to the columns `given`.

    The function has hints, as `arrow_udf` wants them. Spark 4.0 has no such functions. There all columns of the frame
    pass through Python, which is slower.
    """
    make_udf = _find_arrow_udf()
    if make_udf is not None:
        called: Column = make_udf(function, returnType=kind).asNondeterministic()(*given.values())
        return frame, called
    ship_modules([sys.modules[__name__]])
    whole = T.StructType([*frame.schema, T.StructField(name, kind)])
    asked = frame.select("*", *(column.alias(key) for key, column in given.items()))
    adding = functools.partial(add_answers, function, tuple(given), name, make_arrow_schema(whole))
    return asked.mapInArrow(lambda batches: adding(batches), whole), F.col(quote_name(name))


def can_call_arrow_functions() -> bool:
    """Return whether `call_in_workers` passes a function no more than the columns that it is given."""
    return _find_arrow_udf() is not None


def _find_arrow_udf() -> Callable[..., Any] | None:
    return getattr(arrow_functions, "arrow_udf", None)


def add_answers(
    function: ArrowFunction, given: Sequence[str], name: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches with the answers of the function to their columns `given`, which are left out.

    The answers are the column `name` of the schema. They come in pieces of any sizes.
    """
    import pyarrow as pa

    waiting: deque[pa.RecordBatch] = deque()

    def ask() -> Iterator[Any]:
        for batch in batches:
            waiting.append(batch)
            values = [batch.column(key) for key in given]
            yield values[0] if len(values) == 1 else tuple(values)

    for answers in function(ask()):
        while len(answers):
            batch = waiting.popleft()
            count = min(len(answers), batch.num_rows)
            if count:
                columns = [batch.column(each.name) for each in schema if each.name != name]
                parts = [*(column.slice(0, count) for column in columns), answers.slice(0, count)]
                yield pa.RecordBatch.from_arrays(parts, names=schema.names)
            if count < batch.num_rows:
                waiting.appendleft(batch.slice(count))
            answers = answers.slice(count)
