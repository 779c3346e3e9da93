"""A fix: a change to refused rows before they are processed again.

It is a stage that only a replay has, or the rows as a person corrected them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from origins.codec import LEFT_OUT, UNSTORED, decode, encode
from origins.errors import WherryError, has_condition, list_spark_errors
from origins.functions import load_text
from origins.lazy import DataFrame, F, SparkSession, pa
from origins.nack import make_reason, parse_columns
from origins.names import HIDDEN, quote_name
from origins.origin import PLACE
from origins.problems import refuse_unknown
from runners.model.error_kinds import classify
from runners.model.errors import Refusal
from runners.model.text import format_count, summarise_error
from runners.state.journal import Journal, list_decided
from runners.state.prepared_store import PreparedStore
from runners.ways.stage_chain import PlacedStage, StageChain
from stages.columns import WithColumns
from stages.expressions import add_to_select, check_names, is_repeatable_sql, list_tables, put_in
from stages.python import Handler
from stages.rows import Rows
from stages.stage import Stage, check_columns

FIX = "fix"
"""The name of its stage in reports and in the DLQ."""
FIX_CODE = "FIX"
"""The code of a row for which a SELECT does not give exactly one row."""
MOST_BYTES = 65_536
"""The size limit of a fix."""
_AT, _KEY, _NEW, _FOUND = HIDDEN + "at", HIDDEN + "key", HIDDEN + "new", HIDDEN + "found"
_GIVEN = "id string, original string"

log = logging.getLogger("wherry")


@dataclass(frozen=True, kw_only=True)
class GivenRows:
    """Corrected rows by the ids of their entries, each as JSON in the form of `original`.

    They are read in place of their entries in the DLQ, and the state keeps them until all are replayed. The ledger
    keeps only a key and a count, so that the values can be removed.
    """

    key: str = ""
    """A text that is equal for the same rows."""
    count: int = 0
    texts: Mapping[str, str] = field(default_factory=dict, repr=False, metadata=UNSTORED)
    """The rows; empty if only the state has them."""

    @staticmethod
    def of(texts: Mapping[str, str]) -> GivenRows:
        return GivenRows(key=_make_key(texts), count=len(texts), texts=texts)

    def __bool__(self) -> bool:
        return bool(self.key)

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
        if not store.put(f"{self.name}-0", rows, parse_columns(_GIVEN)):
            store.write(f"{self.name}-0", spark.createDataFrame([tuple(each.values()) for each in rows], _GIVEN))
        return self

    def remove(self, store: PreparedStore, spark: SparkSession) -> None:
        """Remove the rows from the store. After an error the next run tries again."""
        try:
            store.remove(spark, self.name)
        except list_spark_errors(WherryError) as error:
            log.warning("the corrected rows of this replay are still in the state: %s", summarise_error(error))

    def load(self, store: PreparedStore, spark: SparkSession) -> GivenRows:
        """Return the rows from the store. Raises `Refusal` if the store does not have all of them."""
        try:
            found = store.read(spark, f"{self.name}-0").select("id", "original").toArrow()
            texts = dict(zip(found["id"].to_pylist(), found["original"].to_pylist(), strict=True))
        except list_spark_errors(pa.ArrowException) as error:
            if classify(error).is_session_lost:
                raise
            texts = {}
        if _make_key(texts) != self.key:
            raise Refusal(
                f"The state no longer has the {format_count(self.count, 'corrected row', 'corrected rows')} of this "
                "replay.",
                hint="Give the same file again:  wherry dlq replay FILE --with rows.csv\n"
                "Or give the replay up:  --give-up",
            )
        return replace(self, texts=texts)


NONE_GIVEN = GivenRows()


def find_given(journal: Journal) -> GivenRows:
    """Return the corrected rows of an interrupted replay while one of them waits, or none. The state must keep them."""
    fix = journal.state.replay.body.get("fix") if journal.state.replay else None
    rows = fix.get("rows") if isinstance(fix, Mapping) else None
    if journal.state.replay is None or not isinstance(rows, Mapping):
        return NONE_GIVEN
    ids = journal.state.replay.body["ids"]
    assert isinstance(ids, list)
    return NONE_GIVEN if list_decided(journal).ids.issuperset(map(str, ids)) else decode(GivenRows, rows)


def _make_key(texts: Mapping[str, str]) -> str:
    found = hashlib.sha256()
    for id_, text in sorted(texts.items()):
        found.update(f"{len(id_)}:{id_}{len(text)}:{text}".encode())
    return found.hexdigest()[:16]


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class Fix:
    """A change to each chosen row: set columns, a query, a function, or the rows as a person corrected them.

    The ledger keeps the text of a fix, so that a resumed replay applies the same fix. Of corrected rows the ledger
    keeps only a key, and the state keeps the rows.
    """

    columns: Mapping[str, str] = field(default_factory=dict, metadata=LEFT_OUT)
    """SQL expressions by the columns that they set."""
    sql: str = field(default="", metadata=LEFT_OUT)
    """One SELECT over `rows`. A column that it does not give stays unchanged."""
    python: str = field(default="", metadata=LEFT_OUT)
    """The text of a file with a function, in the form that the stage `python` takes."""
    rows: GivenRows = field(default=NONE_GIVEN, metadata=LEFT_OUT)
    """The rows as a person corrected them. They are read in place of the rows in the DLQ."""
    file: str = field(default="", metadata=LEFT_OUT)
    """The file of the fix."""
    start: Literal["beginning", "refused"] = "beginning"
    """Whether the fix is applied before all stages, or before the stage that refused the row."""

    def __post_init__(self) -> None:
        given = [each for each in (self.columns, self.sql, self.python, self.rows) if each]
        if len(given) > 1:
            raise Refusal("A replay takes one fix.", hint="Give --set, or one file with --with.")
        size = len(json.dumps(encode(self)).encode())
        if size > MOST_BYTES:
            raise Refusal(
                f"A fix has at most {MOST_BYTES:,} bytes, which the ledger keeps; this one has {size:,}.",
                hint="Put tables and long functions into a module beside the file, and import it.",
            )
        if given and not self.rows:
            self._make_stage()

    def __bool__(self) -> bool:
        return bool(self.columns or self.sql or self.python or self.rows)

    @staticmethod
    def read(file: str | Path, *, start: Literal["beginning", "refused"] = "beginning") -> Fix:
        """Read the fix from a `.sql` or a `.py` file. Raises `Refusal` if the file is not a fix."""
        path = Path(file)
        kinds: Mapping[str, str] = {".sql": "sql", ".py": "python"}
        if path.suffix not in kinds:
            raise Refusal(f"A fix is a .sql or a .py file, got {file}.", hint="To set a column:  --set COLUMN=EXPR")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Refusal(f"The fix {file} cannot be read: {error}.") from error
        if not text.strip():
            raise Refusal(f"The fix {file} is empty.")
        given: dict[str, Any] = {kinds[path.suffix]: text}
        return Fix(**given, file=str(path.absolute()), start=start)

    @property
    def key(self) -> str:
        """A text that is equal for the same fix, even from another file."""
        body = {name: value for name, value in encode(self).items() if name != "file"}
        return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]

    def describe(self) -> str:
        """Describe the fix in a few words."""
        if self.columns:
            return ", ".join(f"{name}={sql}" for name, sql in self.columns.items())
        if self.rows and not self.file:
            return format_count(self.rows.count, "edited row", "edited rows")
        return Path(self.file).name or "a text"

    def put_into(self, chain: StageChain, refuser: str) -> StageChain:
        """Return the chain with the fix in place, for rows that this stage refused. Corrected rows need no stage."""
        if not self or self.rows:
            return chain
        step, number = PlacedStage(number=0, name=name_fix(chain), stage=self._make_stage()), itertools.count(1)

        def place(steps: Sequence[PlacedStage]) -> list[PlacedStage]:
            at = next((index for index, each in enumerate(steps) if each.name == refuser), None)
            inserted = steps if at is None or self.start == "beginning" else [*steps[:at], step, *steps[at:]]
            return [replace(each, number=next(number)) for each in inserted]

        common = place([step, *chain.common] if self.start == "beginning" else chain.common)
        return replace(chain, common=common, branches={name: place(own) for name, own in chain.branches.items()})

    def _make_stage(self) -> Stage:
        try:
            if self.columns:
                return SetColumns(self.columns, name=FIX)
            if self.sql:
                return SelectEach(self.sql, name=FIX)
            return Handler(load_text(self.python, Path(self.file or "fix.py"), prefer=FIX), name=FIX)
        except ValueError as error:
            raise Refusal(f"The fix is wrong: {error}.") from error


NO_FIX = Fix()


def name_fix(chain: StageChain) -> str:
    """Return the name for the stage of a fix in a chain that has none yet."""
    names = {step.name for step in chain.steps}
    others = (f"{FIX}#{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([FIX], others) if each not in names)


def is_fix(stage: str) -> bool:
    """Whether the stage of a fix may have this name."""
    return stage.partition("#")[0] == FIX


@dataclass(frozen=True, kw_only=True)
class SetColumns(WithColumns):
    """Sets columns that the rows already have."""

    def apply(self, rows: Rows) -> Rows:
        check_columns(self.columns, rows)
        return super().apply(rows)


@dataclass(frozen=True, kw_only=True)
class SelectEach(Stage):
    """Changes each row with one SELECT over `rows`. Refuses a row for which the SELECT gives no row or several rows."""

    gathers: ClassVar[bool] = True

    statement: str = field(kw_only=False)

    def __post_init__(self) -> None:
        add_to_select(self.statement, "")

    @property
    def repeatable(self) -> bool:
        return is_repeatable_sql(self.statement) and list_tables(self.statement) <= {"rows"}

    def apply(self, rows: Rows) -> Rows:
        if not rows.explains:  # only the schema is wanted, and such rows have no places
            described = self._ask(rows, rows.frame.withColumn(PLACE, F.lit(0))).drop(_AT).schema
            return rows.with_columns({each.name: F.lit(None).cast(each.dataType) for each in described})
        asked = self._ask(rows, rows.frame.where(rows.live))
        columns = [F.col(quote_name(each)).alias(each) for each in asked.columns[1:]]
        found = asked.groupBy(_AT).agg(F.count(F.lit(1)).alias(_FOUND), F.first(F.struct(*columns)).alias(_NEW))
        count = F.coalesce(F.col(_FOUND), F.lit(0))
        gives = F.concat(F.lit("the SELECT gives "), count.cast("string"), F.lit(" rows for it; expected 1"))
        values = {each: F.col(_NEW)[each] for each in asked.columns[1:]}
        joined = rows.frame.join(found, F.col(PLACE) == F.col(_AT), "left")
        put = {rows.spell_name(name): f"{_NEW}{number}" for number, name in enumerate(values)}
        tried = {f"{_NEW}{number}": value for number, value in enumerate(values.values())}
        why = F.when(F.col(_FOUND) != 1, make_reason(FIX_CODE, gives))
        return rows.with_frame(joined).attempt({**tried, _FOUND: count}, why, put)

    def _ask(self, rows: Rows, frame: DataFrame) -> DataFrame:
        """Return the place of each row, and then the columns of the SELECT."""
        statement = re.sub(r";\s*$", "", put_in(self.statement, rows.labels).rstrip())
        statement = add_to_select(statement, f"{_AT} AS {_KEY}, ").replace("{", "{{").replace("}", "}}")
        seen = frame.select(F.col(PLACE).alias(_AT), *[rows.column(name).alias(name) for name in rows.names])
        try:
            asked = frame.sparkSession.sql(f"with rows as (select * from {{seen}}) (\n{statement}\n)", seen=seen)
            names = [name for name in asked.columns if name != _AT][1:]
        except list_spark_errors() as error:
            if not _lacks_places(error):
                raise
            raise ValueError(
                "the SELECT must read `rows` itself and give one row for each; it may join, but not group, and not "
                "leave out duplicates"
            ) from error
        doubled = [name for name, times in Counter(map(str.lower, names)).items() if times > 1]
        if doubled:
            raise ValueError(
                f"the SELECT gives {', '.join(doubled)} twice; name only the columns that change, without *, because "
                "the others stay as they are"
            )
        check_names("the SELECT", names)
        if not names:
            raise ValueError("the SELECT gives no column")
        return asked.select(F.col(_KEY).alias(_AT), *[F.col(quote_name(name)) for name in names])


def _lacks_places(error: BaseException) -> bool:
    """Whether Spark cannot find or group the place of a row, which Wherry adds to the SELECT."""
    if has_condition(error, "MISSING_GROUP_BY", "NUM_COLUMNS_MISMATCH"):
        return True
    words = summarise_error(error).partition("Did you mean")[0]
    return _AT in words or "`distinct`" in words.lower()
