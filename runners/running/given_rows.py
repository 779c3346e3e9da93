"""Rows that a person corrected. Wherry reads them in place of their entries in the DLQ.

The state keeps them until all are replayed.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from origins.batch import Json
from origins.errors import WherryError, list_spark_errors
from origins.nack import parse_columns
from origins.quick_dataclass import dataclass
from runners.model.error_kinds import classify
from runners.model.errors import Refusal
from runners.model.text import format_count, summarise_error
from runners.state.journal import Journal, list_decided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from runners.state.prepared_store import PreparedStore

_COLUMNS = "id string, original string"

log = logging.getLogger("wherry")


@dataclass(frozen=True, kw_only=True)
class GivenRows:
    """Corrected rows by the ids of their entries, each as JSON in the form of `original`.

    The ledger keeps only a key and a count. The state keeps the values, so that they can be removed.
    """

    key: str = ""
    """A text that is equal for the same rows."""
    count: int = 0
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The rows; empty if only the state has them."""

    @staticmethod
    def of(texts: Mapping[str, str]) -> GivenRows:
        return GivenRows(key=_make_key(texts), count=len(texts), texts=texts)

    @staticmethod
    def of_body(body: Mapping[str, Json]) -> GivenRows:
        """Return the rows from the form that the ledger keeps, without their texts."""
        return GivenRows(key=str(body["key"]), count=int(str(body["count"])))

    def __bool__(self) -> bool:
        return bool(self.key)

    def json(self) -> dict[str, Json]:
        """Return the form that the ledger keeps."""
        return {"key": self.key, "count": self.count}

    @property
    def name(self) -> str:
        """The name of the rows in the store."""
        return f"given{self.key}"

    def keep(self, store: PreparedStore, spark: SparkSession) -> GivenRows:
        """Store the rows if the store lacks them, and return them. Raises `Refusal` if they are not all known."""
        try:
            return self.load(store, spark)
        except Refusal:
            if not self.texts:
                raise
        store.remove(spark, self.name)
        rows = [{"id": id_, "original": text} for id_, text in self.texts.items()]
        if not store.put(f"{self.name}-0", rows, parse_columns(_COLUMNS)):
            store.write(f"{self.name}-0", spark.createDataFrame([tuple(each.values()) for each in rows], _COLUMNS))
        return self

    def remove(self, store: PreparedStore, spark: SparkSession) -> None:
        """Remove the rows from the store. After an error the next run tries again."""
        try:
            store.remove(spark, self.name)
        except list_spark_errors(WherryError) as error:
            log.warning("the corrected rows of this replay are still in the state: %s", summarise_error(error))

    def load(self, store: PreparedStore, spark: SparkSession) -> GivenRows:
        """Return the rows from the store. Raises `Refusal` if the store does not have all of them."""
        from pyarrow import ArrowException

        try:
            found = store.read(spark, f"{self.name}-0").select("id", "original").toArrow()
            texts = dict(zip(found["id"].to_pylist(), found["original"].to_pylist(), strict=True))
        except list_spark_errors(ArrowException) as error:
            if classify(error).is_session_lost:
                raise
            texts = {}
        if _make_key(texts) != self.key:
            raise Refusal(
                f"The state no longer has the {format_count(self.count, 'corrected row', 'corrected rows')} of this "
                "replay.",
                hint="Import the same file again:  wherry dlq import FILE rows.csv\nOr give the replay up:  --give-up",
            )
        return replace(self, texts=texts)


NONE_GIVEN = GivenRows()


def find_given(journal: Journal) -> GivenRows:
    """Return the corrected rows of an interrupted replay while one of them waits, or none. The state must keep them."""
    fix = journal.state.replay["body"].get("fix") if journal.state.replay else None
    rows = fix.get("rows") if isinstance(fix, Mapping) else None
    if journal.state.replay is None or not isinstance(rows, Mapping):
        return NONE_GIVEN
    ids = journal.state.replay["body"]["ids"]
    assert isinstance(ids, list)
    return NONE_GIVEN if list_decided(journal).ids.issuperset(map(str, ids)) else GivenRows.of_body(rows)


def _make_key(texts: Mapping[str, str]) -> str:
    found = hashlib.sha256()
    for id_, text in sorted(texts.items()):
        found.update(f"{len(id_)}:{id_}{len(text)}:{text}".encode())
    return found.hexdigest()[:16]
