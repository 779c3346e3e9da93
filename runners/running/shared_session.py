"""One Spark session for the pipelines of a folder."""

from __future__ import annotations

from collections.abc import Sequence

from origins.lazy import SparkSession
from origins.secret import SECRET
from runners.definitions.definition import Definition
from runners.model.errors import Refusal
from runners.model.spec import SparkOptions
from runners.spark.session import is_given, list_packages, obtain
from runners.state.location import check_lasting


def open_session(definitions: Sequence[Definition]) -> SparkSession:
    """Return one Spark session for all these definitions. If Wherry starts it, it has the settings of each.

    Raise `Refusal` if the settings of two definitions differ.
    """
    conf: dict[str, str] = {}
    first: dict[str, str] = {}
    for definition in definitions:
        name, wanted = definition.pipeline.name, definition.pipeline.spark
        for key, value in wanted.settings.items():
            if conf.setdefault(key, value) != value:
                hidden = isinstance(conf[key], SECRET) or isinstance(value, SECRET)
                values = "two values, which stay secret" if hidden else f"{conf[key]} and {value}"
                raise Refusal(
                    f"{first[key]} and {name} share one Spark, but they set {key} to {values}.",
                    hint="Set one value in both, or schedule them in two directories.",
                )
            first.setdefault(key, name)
    packages = dict.fromkeys(each for definition in definitions for each in list_packages(definition.pipeline))
    starts = not is_given()
    spark = obtain(SparkOptions(conf=conf, packages=tuple(packages)))
    if starts:
        for definition in definitions:
            check_lasting(definition.pipeline, spark)
    return spark
