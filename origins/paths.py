"""Paths: as a definition gave them beside the whole path, and whether Spark finds this machine's files under their
names here.

Whether Spark finds each file of this machine under the name that it has here.

Who makes a session knows that of some, and says so in it; of any other it has to be found out, file by file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, SupportsIndex

from origins.names import SCHEME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class GivenPath(str):
    """A whole path; `given` is the same as it stands in the definition."""

    given: str

    def __new__(cls, path: str, given: str) -> GivenPath:
        made = super().__new__(cls, path)
        made.given = given
        return made

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> GivenPath:
        return GivenPath(super().replace(old, new, count), self.given.replace(old, new, count))

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)

    def __deepcopy__(self, memo: object) -> GivenPath:
        return self


def list_given_paths(paths: Iterable[str | None]) -> list[str]:
    """The paths as they were given, where all of them are relative; else none, for they name one place for ever."""
    found = []
    for path in paths:
        given = path.given if isinstance(path, GivenPath) else path
        if not given or os.path.isabs(given) or SCHEME.match(given):
            return []
        found.append(os.path.normpath(given))
    return found


_ONE_DISK = "wherry.oneDisk"


def declare_one_disk(spark: SparkSession) -> None:
    """Note in the session that its Spark and this process see the same files."""
    spark.conf.set(_ONE_DISK, "true")


def is_one_disk(spark: SparkSession) -> bool:
    """Whether that was noted in the session. Asks Spark for nothing but its settings."""
    return spark.conf.get(_ONE_DISK, "") == "true"
