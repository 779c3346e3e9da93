"""A plain table in a folder of this machine is made in this process, in milliseconds instead of half a second.

What lies there then is what Spark's `CREATE TABLE` leaves: the same protocol, schema and properties, and the checksum
beside the version, from which Delta opens a table without a job.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from destinations.delta_append import open_to_readers
from destinations.delta_short import UNUSABLE
from origins.batch import JSON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

_KNOWN = frozenset({("delta.checkpointInterval", "100"), ("delta.isolationLevel", "Serializable")})
"""The properties with which Delta makes a table of the oldest protocol, as it does without any."""
_SETTINGS = "spark.databricks.delta."
_HARMLESS = frozenset({"spark.databricks.delta.snapshotPartitions"})
"""The settings of Delta's that say nothing of the tables that a session makes."""
_SIMPLE = frozenset({
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp",
})  # fmt: skip


def made_here(spark: SparkSession, folder: Path, schema: StructType, properties: Mapping[str, str]) -> bool:
    """Make a table with these columns and properties and nothing else, if there is nothing in the folder; false if it
    is none that is plain, or could not be made, and Spark has to say why."""
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import DeltaError

    columns = _plain(schema)
    if columns is None or not _KNOWN.issuperset(properties.items()) or UNUSABLE.search(str(folder)):
        return False
    if not _is_default(spark) or not _is_empty(folder):
        return False
    log = folder / "_delta_log"
    missing = [each for each in (log, *log.parents) if not each.exists()]
    try:
        table = DeltaTable.create(
            str(folder), Schema.from_json(json.dumps(columns)), mode="error", configuration=dict(properties)
        )
    except (DeltaError, OSError):
        return False
    _note(folder, table.version())
    _open_to_readers(missing, log)
    return True


def _open_to_readers(folders: Sequence[Path], log: Path) -> None:
    """Whoever may read what Spark makes may read this too: the folders, and the files in the log."""
    for folder in folders:
        folder.chmod(folder.stat().st_mode & stat.S_ISGID | 0o755)
    for file in log.iterdir():
        if file.is_file():
            open_to_readers(file)


def _is_default(spark: SparkSession) -> bool:
    """Whether the session has no word on how Delta makes tables."""
    return all(key in _HARMLESS for key in spark.conf.getAll if key.startswith(_SETTINGS))


def _is_empty(folder: Path) -> bool:
    """Whether nothing is there, or an empty folder."""
    try:
        return not os.listdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _plain(kind: DataType) -> JSON:
    """The type as Delta notes it, everything in it may be NULL; None unless all tables may have it under any name."""
    from pyspark.sql.types import ArrayType, DecimalType, StructType

    if isinstance(kind, StructType):
        fields = [(field.name, _plain(field.dataType)) for field in kind]
        if not all(name.isidentifier() and known is not None for name, known in fields):
            return None
        return {
            "type": "struct",
            "fields": [{"name": name, "type": known, "nullable": True, "metadata": {}} for name, known in fields],
        }
    if isinstance(kind, ArrayType):
        element = _plain(kind.elementType)
        return element and {"type": "array", "elementType": element, "containsNull": True}
    is_simple = isinstance(kind, DecimalType) or kind.simpleString() in _SIMPLE
    return kind.jsonValue() if is_simple else None


def _note(folder: Path, version: int) -> None:
    """Put the checksum beside the version that made the table."""
    log = folder / "_delta_log"
    lines = (log / f"{version:020}.json").read_text(encoding="utf-8").splitlines()
    actions = {name: action for line in lines for name, action in json.loads(line).items()}
    checksum = {
        "tableSizeBytes": 0,
        "numFiles": 0,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [],
        "domainMetadata": [],
        "allFiles": [],
        "metadata": actions["metaData"],
        "protocol": actions["protocol"],
    }
    whole = log / f".{version:020}.crc.{os.getpid()}.tmp"
    whole.write_text(json.dumps(checksum), encoding="utf-8")
    whole.replace(log / f"{version:020}.crc")
