"""Suggests fixes for refused rows. For each cause it tries changes that often help, and returns the best one.

It writes nothing, and applies no fix.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from destinations.dead_letters import read_dead_letters
from origins.batch import JSON
from origins.errors import WherryError
from origins.lazy import SparkSession
from origins.names import quote_name, quote_text
from origins.quick_dataclass import dataclass
from runners.definitions.definition import Definition
from runners.model.causes import Cause, Causes, drop_file, parse_message
from runners.operations.explain_row import name_stages
from runners.operations.fix_preview import FixPreview, preview_fix
from runners.operations.trial import TrialRun
from runners.running.choice import Choice
from runners.running.fix import Fix
from runners.running.replay import Replay, plan_replay
from runners.spark.own_session import put_settings_back
from runners.state.journal import list_decided
from runners.state.location import StateLocation, find_dlq

MOST_CAUSES = 10
"""The number of causes that get a suggestion: those with the most rows."""
SAMPLE = 200
"""The most rows of a cause that are tried."""
_TRIALS = 3
"""The most changes that are tried in today's stages, the most promising first."""
_ALIKE = 0.6
"""The least similarity of two names, from 0 to 1, for a column that may have been renamed."""
_BLANKS, _SIGNS = r"[\s\u00a0]", "[€$£¥%]"
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+")
_WHOLE = ("byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint")
_NUMBERS = (*_WHOLE, "decimal", "dec", "numeric", "float", "real", "double")
_DAYS = ("dd.MM.yyyy", "d.M.yyyy", "MM/dd/yyyy", "dd/MM/yyyy", "yyyy/MM/dd", "dd-MM-yyyy", "yyyyMMdd", "d MMM yyyy")
_CLOCKS = ("", " HH:mm", " HH:mm:ss")
_MOMENT = "yyyy-MM-dd HH:mm:ss"
_NO_VALUE = "'', '-', 'n/a', 'na', 'nan', 'null', 'none', 'unknown'"


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of a column that often helps."""

    name: str
    """What the values have, in words."""
    expression: str


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """The rows of a cause, and a change with which they would pass."""

    cause: Cause
    tried: int = 0
    """The number of its rows on which changes were tried."""
    passing: int = 0
    """The number of these rows that no stage refuses with the change."""
    column: str = ""
    change: Change | None = None
    """The change; None if no tried change helps."""
    others: Sequence[str] = ()
    """Other explanations of the values. With each of them, the same number of values could be read."""
    stage: Mapping[str, JSON] | None = None
    """The stage that refuses the rows, as in today's definition."""
    example: tuple[JSON, JSON] = (None, None)
    """The value of a row before and after the change."""
    why_not: str = ""
    """Why no change is suggested, as a sentence."""

    @property
    def headline(self) -> str:
        """The cause in one line."""
        return Causes(found=(self.cause,)).describe()[0]

    def json(self) -> dict[str, JSON]:
        """Return the form that `--json` prints."""
        return {
            "cause": self.cause.json(),
            "tried": self.tried,
            "passing": self.passing,
            "column": self.column or None,
            "change": self.change.name if self.change else None,
            "expression": self.change.expression if self.change else None,
            "others": list(self.others),
            "stage": dict(self.stage) if self.stage else None,
            "example": {"before": self.example[0], "after": self.example[1]} if self.change else None,
            "why_not": self.why_not or None,
        }


@dataclass
class _Cluster:
    """The waiting rows of a cause: their number, and some of them."""

    cause: Cause
    origin: str
    rows: int = 0
    ids: list[str] = field(default_factory=list)


@put_settings_back()
def suggest_fixes(
    definition: Definition, choice: Choice = Choice(), *, say: Callable[[str], None] = lambda _: None
) -> Sequence[Suggestion]:
    """Return for each cause of the chosen waiting rows a change with which rows pass.

    The causes with the most rows come first. A change is tried on up to 200 rows in today's stages. `say` gets messages
    about progress.

    Raises `Refusal` for an impossible choice.
    """
    clusters, found = _find_clusters(definition, choice), list[Suggestion]()
    if not clusters:
        return found
    trial = TrialRun.open(definition)
    for number, cluster in enumerate(clusters[:MOST_CAUSES], 1):
        say(f"trying changes for cause {number} of {min(MOST_CAUSES, len(clusters))}")
        found.append(_suggest(trial, cluster))
    return found


def _find_clusters(definition: Definition, choice: Choice) -> Sequence[_Cluster]:
    """Group the waiting rows by origin, code, stage and form of the value. The largest groups come first."""
    pipeline = definition.pipeline
    dlq, spark = find_dlq(pipeline)
    decided = list_decided(StateLocation.of(pipeline).open_journal(pipeline))
    found: dict[tuple[str | None, ...], _Cluster] = {}
    for row in choice.list_rows(dlq, spark, "id, origin, code, stage, destination, message, part"):
        if row["id"] in decided:
            continue
        message = drop_file(row["message"] or "", [row["part"]] if row["part"] else [])
        parsed = parse_message(message)
        key = row["origin"], row["code"], row["stage"], row["destination"], parsed.problem, parsed.form
        cluster = found.get(key)
        if cluster is None:
            cause = Cause(code=row["code"], stage=row["stage"], destination=row["destination"], form=parsed.form)
            shown = pipeline.protection.mask_message(message)
            cluster = found[key] = _Cluster(cause=cause.put_message(shown), origin=row["origin"])
        cluster.rows += 1
        if len(cluster.ids) < SAMPLE:
            cluster.ids.append(row["id"])
    return sorted(found.values(), key=lambda each: -each.rows)


def _suggest(trial: TrialRun, cluster: _Cluster) -> Suggestion:
    definition = trial.definition
    pipeline, cause = definition.pipeline, replace(cluster.cause, rows=cluster.rows, waiting=cluster.rows)
    stage = name_stages(json.loads(definition.text), cluster.origin).get(cause.stage or cause.destination or "")
    rows = [each["row"] for each in read_dead_letters(*find_dlq(pipeline), ids=cluster.ids)]
    if cause.stage == "origin" or not all(isinstance(row, dict) for row in rows):
        return Suggestion(cause=cause, why_not="A line that could not be read has no columns to change.")
    if not isinstance(stage, dict):
        return Suggestion(cause=cause, why_not=f"The definition has no stage {cause.stage or cause.destination} now.")
    options = _list_options(trial.spark, cause, stage, rows)
    tried, changes, why_not = 0, list[str](), "" if options else "Wherry knows no change for it."
    for option in options[:_TRIALS]:
        fix = Fix(columns={option.column: option.change.expression}, start="refused")
        replay = Replay(choice=Choice(ids=tuple(cluster.ids)), fix=fix, reason="a trial")
        try:
            preview = preview_fix(definition, plan_replay(pipeline, replay.choice, fix), replay, trial=trial, shown=1)
        except WherryError as error:
            why_not = error.message
            continue
        tried, passing = preview.read, preview.passing + preview.filtered
        changes.append(option.change.name)
        if passing:
            alike = {tuple(each.values): each.change.name for each in reversed(options) if each.contradicts(option)}
            return Suggestion(
                cause=cause,
                tried=tried,
                passing=passing,
                column=option.column,
                change=option.change,
                others=[*alike.values()],
                stage=stage,
                example=_find_example(preview, option.column),
            )
    why_not = why_not or f"Tried: {' and '.join(changes)}. The rows would be refused again."
    return Suggestion(cause=cause, tried=tried, stage=stage, why_not=why_not)


def _find_example(preview: FixPreview, column: str) -> tuple[JSON, JSON]:
    for each in preview.rows:
        before, after = each.row.before, each.row.after
        if each.row.outcome != "rejected" and isinstance(before, Mapping) and isinstance(after, Mapping):
            return before.get(column), after.get(column)
    return None, None


@dataclass(frozen=True, kw_only=True)
class _Option:
    """A change that may help, and the values that it makes. A value is None if the change does not help it."""

    column: str
    change: Change
    values: Sequence[str | None]

    @property
    def fits(self) -> int:
        return sum(value is not None for value in self.values)

    def contradicts(self, other: _Option) -> bool:
        """Whether it fits the same number of the column's values, and makes other values from them."""
        return (self.column, self.fits) == (other.column, other.fits) and self.values != other.values


def _list_options(
    spark: SparkSession, cause: Cause, stage: Mapping[str, Any], rows: Sequence[Mapping[str, JSON]]
) -> Sequence[_Option]:
    """Return the changes that may help, the most promising first."""
    columns, found = {name.lower(): name for name in rows[0]}, list[_Option]()
    for column, kind in _read_kinds(stage).items():
        name = columns.get(column.lower())
        texts = [row[name] for row in rows if isinstance(row.get(name), str)] if name else []
        if name and texts and (not cause.column or name.lower() in cause.column.lower().split(", ")):
            changes = [*list_changes(name, kind)]
            if all(_THOUSANDS.fullmatch(text) for text in texts):  # 1,234 is more likely 1234 than 1.234
                changes.sort(key=lambda each: "decimal comma" in each.name)
            values = _try_changes(spark, name, kind, texts, changes)
            pairs = zip(changes, values, strict=True)
            found += [_Option(column=name, change=change, values=made) for change, made in pairs]
    found += _find_renamed(stage, rows)
    return sorted((each for each in found if each.fits), key=lambda each: -each.fits)


def _read_kinds(stage: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the types to which a stage `cast` converts columns."""
    kinds = stage.get("cast")
    kinds = kinds.get("columns", kinds) if isinstance(kinds, Mapping) else {}
    return {str(column): str(kind) for column, kind in kinds.items() if isinstance(kind, str)}


def list_changes(column: str, kind: str) -> Iterator[Change]:
    """Yield changes that often help a text that cannot be cast. A value that can be cast stays unchanged."""
    name, base = column if column.isidentifier() else quote_name(column), kind.lower().partition("(")[0].strip()

    def strip(pattern: str) -> str:
        return f"regexp_replace({name}, {quote_text(pattern)}, '')"

    def where(pattern: str, expression: str) -> str:
        return f"if({name} RLIKE {quote_text(pattern)}, {expression}, {name})"

    def format_time(parsed: str, pattern: str) -> str:
        return f"coalesce(date_format({parsed}, '{pattern}'), {name})"

    found = {"blanks around it": strip(rf"^{_BLANKS}+|{_BLANKS}+$")}
    if base in _NUMBERS:
        found |= {
            "a decimal comma": f"replace({name}, ',', '.')",
            "commas between thousands": where(r"^[-+]?\d{1,3}(,\d{3})+([.]\d+)?$", f"replace({name}, ',', '')"),
            "points between thousands": where(
                r"^[-+]?\d{1,3}([.]\d{3})+(,\d+)?$", f"replace(replace({name}, '.', ''), ',', '.')"
            ),
            "blanks or apostrophes between thousands": strip(rf"'|{_BLANKS}"),
            "a currency or a per cent sign": strip(rf"{_SIGNS}|{_BLANKS}"),
            "a currency sign and a decimal comma": f"replace({strip(rf'{_SIGNS}|{_BLANKS}')}, ',', '.')",
        }
    if base in _WHOLE:
        found["zeros behind a decimal point"] = strip("[.]0+$")
    if base == "date":
        times = {day: f"try_to_timestamp({name}, '{day}')" for day in _DAYS}
        found |= {f"the format {each}": format_time(parsed, "yyyy-MM-dd") for each, parsed in times.items()}
    if base.startswith("timestamp"):
        times = {day + clock: f"try_to_timestamp({name}, '{day + clock}')" for day in _DAYS for clock in _CLOCKS}
        found |= {f"the format {each}": format_time(parsed, _MOMENT) for each, parsed in times.items()}
        number = f"try_cast({name} AS bigint)"
        found["milliseconds since 1970"] = format_time(f"timestamp_millis({number})", _MOMENT + ".SSS")
        found["seconds since 1970"] = format_time(f"timestamp_seconds({number})", _MOMENT)
    found["a word for no value"] = f"if(lower(trim({name})) IN ({_NO_VALUE}), NULL, {name})"
    for words, expression in found.items():
        yield Change(name=words, expression=f"if(try_cast({name} AS {kind}) IS NULL, {expression}, {name})")


def _try_changes(
    spark: SparkSession, column: str, kind: str, values: Sequence[str], changes: Sequence[Change]
) -> Sequence[Sequence[str | None]]:
    """Return what each change makes of the values: None if it still cannot be cast, and an empty text for NULL."""
    frame = spark.createDataFrame([(value,) for value in values], f"{quote_name(column)} string")
    columns = [
        f"if(({each.expression}) IS NULL, '', CAST(try_cast(({each.expression}) AS {kind}) AS STRING))"
        for each in changes
    ]
    rows = frame.selectExpr(*columns).collect()
    return [[row[index] for row in rows] for index in range(len(changes))]


def _find_renamed(stage: Mapping[str, Any], rows: Sequence[Mapping[str, JSON]]) -> Iterator[_Option]:
    """Yield a change for each column of the stage that is NULL in all rows, from a column with a similar name."""
    words = set(re.findall(r"\w+", json.dumps(stage).lower()))
    for column in rows[0]:
        if column.lower() not in words or any(row.get(column) is not None for row in rows):
            continue
        for other in rows[0]:
            values = [None if row.get(other) is None else str(row.get(other)) for row in rows]
            alike = difflib.SequenceMatcher(None, column.lower(), other.lower()).ratio()
            is_part = column.lower() in other.lower() or other.lower() in column.lower()
            if other != column and (alike >= _ALIKE or is_part):
                change = Change(
                    name=f"its value in the column {other}",
                    expression=f"coalesce({quote_name(column)}, {quote_name(other)})",
                )
                yield _Option(column=column, change=change, values=values)
