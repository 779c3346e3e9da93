"""Whether Spark finds each file of this machine under the name that it has here.

Who makes a session knows that of some, and says so in it; of any other it has to be found out, file by file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ONE_DISK = "wherry.oneDisk"


def say_one_disk(spark: SparkSession) -> None:
    """Note in the session that its Spark and this process see the same files."""
    spark.conf.set(_ONE_DISK, "true")


def is_one_disk(spark: SparkSession) -> bool:
    """Whether that was noted in the session. Asks Spark for nothing but its settings."""
    return spark.conf.get(_ONE_DISK, "") == "true"
