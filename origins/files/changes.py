"""Policies for files that do not match their schema, one for each kind of change, and the growth of a schema."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from origins.errors import OriginError, get_raised_words
from origins.lazy import DataFrame, T
from origins.nack import REFUSED
from origins.names import quote_name, quote_text
from origins.protection import Protection

RESCUED = "_rescued"
"""The column that keeps values that did not fit, as one JSON object."""
STOPS = "WHERRY_SCHEMA_STOP "
"""The beginning of the error that a query raises at a line with the policy `stop`."""
_MAY: Mapping[str, tuple[str, ...]] = {
    "missing": ("stop", "evolve", "nack"),
    "extra": ("stop", "evolve", "nack", "rescue", "ignore"),
    "wider": ("stop", "evolve", "nack", "rescue"),
    "other": ("stop", "nack", "rescue"),
    "corrupt": ("stop", "nack", "rescue"),
    "doubled": ("nack", "keep_last"),
}

_DIFFERENCES = {
    "missing": "has no column {}",
    "extra": "has the column {}, which the schema does not have",
    "wider": "has the column {}",
    "other": "has the column {}",
    "twice": "has the column {} more than once",
}
"""The text of a message about a file with such columns. A column that is there twice always stops the run."""
_REFUSES = (("missing", "nack"), ("extra", "nack"), ("extra", "evolve"))
"""The policies that refuse a file as a whole. Columns that evolve are in the schema before the file is read."""
_WHOLE = r"^[+-]?([0-9]{1,38})()$"
_NUMBER = r"^[+-]?([0-9]*)[.]?([0-9]*)$"


class SchemaChanged(OriginError):
    """Files do not match their schema, and the policy for that is `stop`."""

    code = "SCHEMA"


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The policy for each kind of change."""

    missing: str = "stop"
    """A column of the schema that is missing in a file or in a line of JSON."""
    extra: str = "stop"
    """A column that the schema does not have."""
    wider: str = "nack"
    """A number that is too large or too fine for its column, but fits a wider type of its kind."""
    other: str = "nack"
    """A value of another type, or a name that differs from its column's only in upper and lower case."""
    corrupt: str = "nack"
    """A line that is not valid in the format."""
    doubled: str = "nack"
    """A JSON key that occurs twice in one object. With `keep_last` its last value is read, as Spark does."""

    @staticmethod
    def of(kind: str, policies: Mapping[str, str], *, given: bool) -> Changes:
        """Return the definition's policies, completed.

        A `given` schema names the wanted columns. Some files may lack columns of a schema that grows, or of a schema
        from all parquet files.
        """
        defaults = {"extra": "ignore"} if given else {}
        if kind == "json" or policies.get("extra") == "evolve" or (kind == "parquet" and not given):
            defaults["missing"] = "evolve"
        if kind == "parquet":
            defaults |= {"wider": "stop", "other": "stop", "corrupt": "stop"}
        return Changes(**{**defaults, **policies})

    @property
    def evolves(self) -> bool:
        """Whether the schema grows with the files."""
        return "evolve" in (self.extra, self.wider)

    @property
    def rescues(self) -> bool:
        """Whether rows have the column `RESCUED`."""
        return "rescue" in (self.extra, self.wider, self.other, self.corrupt)

    def judge_file(
        self, file: str, differences: Mapping[str, Sequence[str]], *, fix: str, note: str = "", rescues: bool = True
    ) -> str:
        """Return why all rows of a file with these differences, by their kinds, are refused; empty if they are not.

        Raise `SchemaChanged` if a policy is to stop. `rescues` is false if an extra column cannot be rescued.
        """
        found = {kind: words.format(", ".join(differences.get(kind, ()))) for kind, words in _DIFFERENCES.items()}
        policies = {kind: getattr(self, kind, "stop") for kind in found if differences.get(kind)}
        stops = [kind for kind, policy in policies.items() if policy == "stop"]
        if stops:
            let = ", ".join(f"{kind}: {'evolve' if 'evolve' in _MAY.get(kind, ()) else 'rescue'}" for kind in stops)
            remedy = (
                f", move it out of the path, or say in the definition: `on_change: {{{let}}}` accepts the change, "
                f"`on_change: {{{', '.join(f'{kind}: nack' for kind in stops)}}}` refuses its rows"
            )
            raise SchemaChanged(
                f"{file} {' and '.join(found[kind] for kind in stops)}.{note}",
                hint=f"{fix} the file{', or move it out of the path' if 'twice' in stops else remedy}.",
            )
        refuses = _REFUSES if rescues else (*_REFUSES, ("extra", "rescue"))
        wrong = [found[kind] for kind in policies if (kind, policies[kind]) in refuses]
        return f"the file {' and '.join(wrong)}" if wrong else ""

    def limit_lost(self, is_lost: str, is_wider: str, policies: Collection[str]) -> str:
        """Return SQL that is true for a value that does not fit (`is_lost`), if the policy for it is one of these.

        `is_wider` is true for a value that a wider number can hold.
        """
        wider, other = self.wider in policies, self.other in policies
        if wider == other:
            return is_lost if wider else "false"
        return f"{is_lost} and {'' if wider else 'not '}{is_wider}"


def check_changes(kind: str, policies: Mapping[str, str], options: Mapping[str, object]) -> None:
    """Raise ValueError for an unknown kind of change or policy."""
    for change, policy in policies.items():
        if change not in _MAY:
            raise ValueError(f"on_change: expected {', '.join(_MAY)}, got {change!r}")
        if policy not in _MAY[change]:
            raise ValueError(f"on_change.{change}: expected {', '.join(_MAY[change])}, got {policy!r}")
        if kind == "text":
            raise ValueError(f"on_change: text has one column and no types, so there is no {change} to decide about")
        if kind == "parquet" and change == "corrupt" and policy != "stop":
            raise ValueError("on_change.corrupt: expected stop, since a broken parquet file has no lines to refuse")
        if kind != "json" and change == "doubled":
            raise ValueError(f"on_change.doubled: expected format: json beside it, got {kind}")
    given = {name.lower() for name, value in options.items() if str(value).lower() == "true"}
    odd = sorted(given & {"allowcomments", "allowsinglequotes"}) if "multiline" in given else []
    if odd and "rescue" in policies.values():
        raise ValueError(f"on_change: expected no rescue beside multiLine and {odd[0]}, since objects cannot be split")


def find_schema_stop(error: BaseException, protection: Protection) -> SchemaChanged | None:
    """Return the error that a query raised at a line with the policy `stop`; None for any other error."""
    message = get_raised_words(error)
    if not message.startswith(STOPS):
        return None
    return SchemaChanged(
        protection.mask_message(message.removeprefix(STOPS).partition(STOPS.strip())[0].strip()),
        hint="No row of its batch was delivered. Correct the file, or set `on_change` in the definition.",
    )


def grow_schema(schema: T.StructType, found: T.StructType, changes: Changes) -> T.StructType:
    """Return the schema with the columns that were found in files, as far as the policies are `evolve`.

    Existing columns keep their position and name. New columns and fields follow them. A name that differs from an
    existing one only in upper and lower case is not new.
    """
    grew = _grow_type(schema, found, changes)
    assert isinstance(grew, type(schema))
    return grew


def _grow_type(kind: T.DataType, found: T.DataType, changes: Changes) -> T.DataType:
    if isinstance(kind, T.StructType) and isinstance(found, T.StructType):
        there = {field.name: field.dataType for field in found}
        fields = [
            T.StructField(field.name, _grow_type(field.dataType, there.get(field.name, field.dataType), changes))
            for field in kind
        ]
        known = {field.name.lower() for field in kind}
        for field in found if changes.extra == "evolve" else ():
            if field.name.lower() not in known:
                known.add(field.name.lower())
                fields.append(T.StructField(field.name, field.dataType))
        return T.StructType(fields)
    if isinstance(kind, T.ArrayType) and isinstance(found, T.ArrayType):
        return T.ArrayType(_grow_type(kind.elementType, found.elementType, changes))
    if isinstance(kind, T.MapType) and isinstance(found, T.MapType):
        return T.MapType(kind.keyType, _grow_type(kind.valueType, found.valueType, changes))
    if changes.wider == "evolve" and is_wider(found, kind):
        return found
    return kind


def is_wider(wide: T.DataType, narrow: T.DataType) -> bool:
    """Return whether every value of the narrow type fits the wide type, and a Delta table can widen a column to it."""
    whole: list[type[T.DataType]] = [T.ByteType, T.ShortType, T.IntegerType, T.LongType]
    digits = dict(zip(whole, (3, 5, 10, 19), strict=True))
    if type(narrow) in digits and type(wide) in digits:
        return whole.index(type(wide)) > whole.index(type(narrow))
    if isinstance(wide, T.DecimalType):
        least = 20 if isinstance(narrow, T.LongType) else 10
        if type(narrow) in digits:
            return wide.precision - wide.scale >= least
        if not isinstance(narrow, T.DecimalType) or wide == narrow:
            return False
        return wide.scale >= narrow.scale and wide.precision - wide.scale >= narrow.precision - narrow.scale
    if isinstance(wide, T.DoubleType):
        return isinstance(narrow, T.FloatType)
    return False


def widen_numbers(
    columns: Sequence[T.StructField], read: Callable[[list[T.StructField]], DataFrame]
) -> list[T.StructField]:
    """Return the columns, with types wide enough for their numbers. Text that is not a number widens nothing.

    `read` returns the rows of the files, lazily, with the given columns. It takes one Spark job, if any column is a
    number.
    """
    numbers = [column for column in columns if isinstance(column.dataType, T.IntegralType | T.DecimalType)]
    if not numbers:
        return list(columns)
    names = {column.name for column in numbers}
    as_text = [T.StructField(each.name, T.StringType()) if each.name in names else each for each in columns]
    rows = read(as_text).where(f"{REFUSED} is null")
    asked = [wanted for column in numbers for wanted in _make_width_queries(column)]
    found = iter(rows.selectExpr(*asked).collect()[0])
    wide = {
        column.name: _widen_column(column, [next(found) for _ in _make_width_queries(column)]) for column in numbers
    }
    return [wide.get(column.name, column) for column in columns]


def _make_width_queries(column: T.StructField) -> list[str]:
    """Return SQL over all values: the digits before and after the point, the largest whole number, and an overflow."""
    value = f"trim({quote_name(column.name)})"
    pattern = _NUMBER if column.dataType.typeName() == "decimal" else _WHOLE

    def digits(group: int) -> str:
        is_number = f"{value} rlike {quote_text(pattern)}"
        return (
            f"max(case when {is_number} then char_length(regexp_extract({value}, {quote_text(pattern)}, {group})) end)"
        )

    whole = f"try_cast({value} as long)"
    beyond = f"max(case when {value} rlike {quote_text(_WHOLE)} and {whole} is null then 1 else 0 end)"
    return [digits(1), digits(2), f"max(if({whole} < 0, ~{whole}, {whole}))", beyond]


def _widen_column(column: T.StructField, found: Sequence[int | None]) -> T.StructField:
    before, behind, largest, beyond = (each or 0 for each in found)
    kind = column.dataType
    if isinstance(kind, T.DecimalType):
        scale, digits = max(kind.scale, behind), max(kind.precision - kind.scale, before)
        return T.StructField(column.name, T.DecimalType(digits + scale, scale)) if digits + scale <= 38 else column
    if beyond:
        return T.StructField(column.name, T.DecimalType(max(before, 20), 0))
    ladder = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
    fits = (each for each in ladder[ladder.index(type(kind)) :] if largest < 1 << (8 * (1 << ladder.index(each)) - 1))
    return T.StructField(column.name, next(fits)())
