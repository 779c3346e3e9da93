"""How parquet files become rows, each of which says itself which columns it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from origins.bad_lines import Verdict
from origins.changes import RESCUED, Changes, SchemaChanged, ways_on
from origins.json_keys import paths_in
from origins.listing import Place, without_scheme
from origins.names import HIDDEN, quoted, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from origins.file_rows import FileRows

_OURS = HIDDEN + "none_"
_GOOD = Verdict(is_bad="false", why="cast(null as string)", raw="cast(null as string)")


@dataclass(frozen=True)
class Footer:
    """What is done with files that have these columns."""

    wrong: str = ""
    """Why all their rows are refused; empty if they are not."""
    extra: tuple[str, ...] = ()
    """The columns that are rescued; of files that are refused, all that they have."""
    types: str = ""
    """The types of their columns, where they are read with these."""


@dataclass(frozen=True, kw_only=True)
class ParquetRows:
    """Parquet files, and the rows that are wanted of them."""

    files: FileRows
    names: Sequence[str]
    schema: StructType
    places: bool

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows, lazily, each with its verdict where files may be refused."""
        if not self._asks:
            return self._as_they_are(spark, self.names)
        groups: dict[Footer, list[str]] = {}
        for name, found in footers(spark, self.files.place, self.names):
            footer = self._judged(name, found) if found is not None else Footer()
            groups.setdefault(footer, []).append(name)
        frames = [self._one(spark, footer, names) for footer, names in groups.items()]
        return reduce(lambda one, other: one.unionByName(other), frames)

    @property
    def _changes(self) -> Changes:
        return self.files.changes

    @property
    def _asks(self) -> bool:
        return self._changes.missing != "evolve" or self._changes.extra != "ignore"

    def _judged(self, name: str, found: StructType) -> Footer:
        have, want = ({path.lower(): path for path in paths_in(kind)} for kind in (found, self.schema))
        beside = {name.lower() for name in self.files.told}
        differs = {
            "missing": [path for key, path in want.items() if key not in have],
            "extra": [path for key, path in have.items() if key not in want and key not in beside],
        }
        said = {"missing": "has no column {}", "extra": "has the column {}, which the schema has not"}
        told = {kind: said[kind].format(", ".join(_topmost(paths))) for kind, paths in differs.items() if paths}
        stops = {kind: what for kind, what in told.items() if getattr(self._changes, kind) == "stop"}
        if stops:
            raise SchemaChanged(
                f"{self.files.place.full(name)} {' and '.join(stops.values())}.",
                hint=f"Put another file in its place, move it away, or {ways_on(stops)}.",
            )
        extra = tuple(column for column in found.names if column in differs["extra"])
        kept = extra if self._changes.extra == "rescue" else ()
        nested = set(_topmost(differs["extra"])) - set(extra)
        nacks = {
            ("missing", "nack"),
            ("extra", "nack"),
            ("extra", "evolve"),
            *([("extra", "rescue")] if nested else []),
        }
        wrong = [what for kind, what in told.items() if (kind, getattr(self._changes, kind)) in nacks]
        if wrong:
            return Footer(f"the file {' and '.join(wrong)}", tuple(sorted(found.names)), found.json())
        return Footer("", kept, found.json() if kept else "")

    def _one(self, spark: SparkSession, footer: Footer, names: Sequence[str]) -> DataFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructType

        if not footer.extra:
            return self._as_they_are(spark, names)
        found = schema_of(spark, self.files.place, names[0])
        if footer.wrong:
            whole = self.files.load(spark, names, found, self.files.options, self.places)
            raw = f"to_json(struct({', '.join(map(quoted, found.names))}))"
            nothing = [F.lit(None).cast(column.dataType).alias(f"{_OURS}{n}") for n, column in enumerate(self.schema)]
            given = {name: f"{_OURS}{number}" for number, name in enumerate(self.schema.names)}
            verdict = Verdict(is_bad="true", why=text(footer.wrong), raw=raw, is_change="true")
            return self.files.selected(whole.select("*", *nothing), given, verdict, self.places)
        beside = [column for column in found if column.name in footer.extra]
        rows = self.files.load(spark, names, StructType([*self.schema, *beside]), self.files.options, self.places)
        kept = f"nullif(to_json(struct({', '.join(quoted(column.name) for column in beside)})), '{{}}')"
        files = replace(self.files, told={**self.files.told, RESCUED: kept})
        return files.selected(rows, self._given, _GOOD, self.places)

    def _as_they_are(self, spark: SparkSession, names: Sequence[str]) -> DataFrame:
        rows = self.files.load(spark, names, self.schema, self.files.options, self.places)
        return self.files.selected(rows, self._given, _GOOD if self._asks else None, self.places)

    @property
    def _given(self) -> dict[str, str]:
        return dict(zip(self.schema.names, self.schema.names, strict=True))


def footers(spark: SparkSession, place: Place, names: Sequence[str]) -> Iterator[tuple[str, StructType | None]]:
    """The columns that each file says it has; of times Spark may know better which kind they are. None for a file that
    cannot be read: to read it says why. A Spark job a file only where this machine cannot look."""
    from pyarrow import ArrowException, parquet
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    for name in names:
        if not place.local:
            yield name, schema_of(spark, place, name)
            continue
        try:
            found = parquet.read_schema(without_scheme(place.full(name)))
        except (ArrowException, OSError):
            yield name, None
            continue
        try:
            yield name, from_arrow_schema(found)
        except (PySparkException, TypeError):
            yield name, schema_of(spark, place, name)


def schema_of(spark: SparkSession, place: Place, name: str) -> StructType:
    """The columns of one file, as Spark reads them."""
    return spark.read.parquet(place.patterns([name])[0]).schema


def _topmost(paths: Sequence[str]) -> list[str]:
    """Those of the paths that lie in no other."""
    return [path for path in paths if not any(path.startswith(f"{other}.") for other in paths)]
