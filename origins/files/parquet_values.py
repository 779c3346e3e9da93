"""SQL that converts a parquet value to another type, and the verdict on rows with a value that does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from origins.files.bad_lines import (
    Verdict,
    describe_misfit,
    fits_wider_number,
    is_changed,
    join_conditions,
    parse_decimal_sql,
)
from origins.files.changes import Changes, is_wider
from origins.lazy import T
from origins.names import HIDDEN, quote_name, quote_text
from origins.schema import get_sql_type


def list_differences(want: T.DataType, found: T.DataType, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the differences of a found type from the wanted type: the kind of change, the path, and the message.

    Nothing inside a difference is yielded. Names match in upper and lower case.
    """
    if isinstance(want, T.StructType) and isinstance(found, T.StructType):
        before = f"{path}." if path else ""
        there, known = ({field.name.lower(): field for field in kind} for kind in (found, want))
        for key, field in known.items():
            if key in there:
                yield from list_differences(field.dataType, there[key].dataType, before + field.name)
            else:
                yield "missing", before + field.name, before + field.name
        yield from (
            ("extra", before + field.name, before + field.name) for field in found if field.name.lower() not in known
        )
    elif isinstance(want, T.ArrayType) and isinstance(found, T.ArrayType):
        yield from list_differences(want.elementType, found.elementType, path)
    elif isinstance(want, T.MapType) and isinstance(found, T.MapType) and is_read_as(want.keyType, found.keyType):
        yield from list_differences(want.valueType, found.valueType, path)
    elif not is_read_as(want, found):
        message = f"{path} as {found.simpleString()} instead of {want.simpleString()}"
        yield "wider" if is_wider(found, want) else "other", path, message


def differs(want: T.DataType, found: T.DataType) -> bool:
    """Return whether some or all values of the one type cannot be read as the other."""
    return any(kind in ("wider", "other") for kind, _, _ in list_differences(want, found))


def is_read_as(want: T.DataType, found: T.DataType) -> bool:
    """Return whether Spark's parquet reader reads every value of the found type unchanged as the wanted type.

    It is true for types that are not known here, because the reader itself raises an error if it cannot read them.
    """
    same = {
        (T.ByteType, T.DoubleType), (T.ShortType, T.DoubleType), (T.IntegerType, T.DoubleType),
        (T.DateType, T.TimestampNTZType), (T.TimestampNTZType, T.TimestampType), (T.TimestampType, T.TimestampNTZType),
        (T.BinaryType, T.StringType), (T.StringType, T.BinaryType), (T.StringType, T.StringType),
    }  # fmt: skip
    known = (
        *(T.NumericType, T.StringType, T.BinaryType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType),
        *(T.ArrayType, T.MapType, T.StructType),
    )
    if not isinstance(want, known) or not isinstance(found, known):
        return True
    nested = (T.ArrayType, T.MapType, T.StructType)
    if isinstance(want, nested) or isinstance(found, nested):
        return False
    return want == found or (type(found), type(want)) in same or is_wider(want, found)


@dataclass(frozen=True)
class FittedValue:
    """SQL for a value with the wanted type."""

    value: str
    """The value. It is NULL, or has NULL in it, if something does not fit."""
    lost: str = "false"
    """A condition that is true if the value, or a part, does not fit; never NULL."""


def fit_value(value: str, found: T.DataType, want: T.DataType, depth: int = 0) -> FittedValue:
    """Return the value with the wanted type.

    It fits if the text of a CSV field would, and if it is still the same number or time afterwards. The parts of
    arrays, maps and structs are converted separately. As text they are JSON.
    """
    if get_sql_type(found) == get_sql_type(want):
        return FittedValue(value)
    each = f"{HIDDEN}each_{depth}"
    if isinstance(found, T.StructType) and isinstance(want, T.StructType):
        return _fit_struct(value, found, want, depth)
    if isinstance(found, T.ArrayType) and isinstance(want, T.ArrayType):
        inner = fit_value(each, found.elementType, want.elementType, depth + 1)
        return FittedValue(f"transform({value}, {each} -> {inner.value})", _any(value, each, inner))
    if isinstance(found, T.MapType) and isinstance(want, T.MapType) and is_read_as(want.keyType, found.keyType):
        inner = fit_value(each, found.valueType, want.valueType, depth + 1)
        values = f"transform_values({value}, ({HIDDEN}key_{depth}, {each}) -> {inner.value})"
        return FittedValue(f"cast({values} as {get_sql_type(want)})", _any(f"map_values({value})", each, inner))
    if isinstance(want, T.StringType):
        return FittedValue(as_text(value, found))
    if not _has_parts(found) and is_read_as(want, found):
        return FittedValue(f"cast({value} as {get_sql_type(want)})")
    return _fit_scalar(value, found, want)


def as_text(value: str, kind: T.DataType) -> str:
    """Return SQL for the value in a message."""
    return f"to_json({value})" if _has_parts(kind) else f"cast({value} as string)"


def _fit_scalar(value: str, found: T.DataType, want: T.DataType) -> FittedValue:
    kind = get_sql_type(want)
    if _has_parts(found) or _has_parts(want) or not (isinstance(found, T.StringType) or _is_like(found, want)):
        return FittedValue(f"cast(null as {kind})", f"({value} is not null)")
    typed = f"try_cast({as_text(value, found)} as {kind})"
    if isinstance(found, T.StringType):
        typed = parse_decimal_sql(value, want) if isinstance(want, T.DecimalType) else typed
        changed = is_changed(value, kind, typed)
        return FittedValue(typed, f"({value} is not null and ({typed} is null or coalesce({changed}, false)))")
    short = isinstance(found, T.DoubleType) and isinstance(want, T.FloatType)  # 0.1 is a different number in each type
    back = f"try_cast({f'cast({typed} as string)' if short else typed} as {get_sql_type(found)})"
    return FittedValue(typed, f"({value} is not null and not coalesce({back} = {value}, false))")


def _fit_struct(value: str, found: T.StructType, want: T.StructType, depth: int) -> FittedValue:
    there = {field.name.lower(): field for field in found}
    parts, lost = [], []
    for field in want:
        own = there.get(field.name.lower())
        inner = FittedValue(f"cast(null as {get_sql_type(field.dataType)})")
        if own is not None:
            inner = fit_value(f"{value}.{quote_name(own.name)}", own.dataType, field.dataType, depth)
        parts.append(f"{quote_text(field.name)}, {inner.value}")
        lost.append(inner.lost)
    return FittedValue(f"if({value} is null, null, named_struct({', '.join(parts)}))", f"({join_conditions(lost)})")


def _any(values: str, each: str, inner: FittedValue) -> str:
    return f"coalesce(exists({values}, {each} -> {inner.lost}), false)" if inner.lost != "false" else "false"


def _has_parts(kind: T.DataType) -> bool:
    return isinstance(kind, T.ArrayType | T.MapType | T.StructType)


def _is_like(found: T.DataType, want: T.DataType) -> bool:
    times = (T.DateType, T.TimestampType, T.TimestampNTZType)
    return any(isinstance(found, kinds) and isinstance(want, kinds) for kinds in ((T.NumericType,), times))


@dataclass(frozen=True)
class OtherColumn:
    """A column whose type in a file differs from the schema."""

    wanted: T.StructField
    own: T.StructField

    @property
    def value(self) -> str:
        """Return SQL for its values with the wanted type; NULL for a value that does not fit."""
        return f"if({self._fit.lost}, null, {self._fit.value})"

    def make_lost_sql(self, changes: Changes, *policies: str) -> str:
        """Return SQL that is true for a value that does not fit, if the policy for it is one of these."""
        return changes.limit_lost(self._fit.lost, fits_wider_number(self.wanted, self._text), policies)

    @property
    def misfit_message(self) -> str:
        return describe_misfit(self.wanted, self._text)

    @property
    def _fit(self) -> FittedValue:
        return fit_value(quote_name(self.own.name), self.own.dataType, self.wanted.dataType)

    @property
    def _text(self) -> str:
        return as_text(quote_name(self.own.name), self.own.dataType)


def make_rescued_sql(others: Iterable[OtherColumn], extra: Iterable[str], changes: Changes) -> str:
    """Return SQL for the rescued values of a row, as JSON; NULL if nothing was rescued."""
    values = {name: quote_name(name) for name in extra}
    for other in others:
        is_kept = other.make_lost_sql(changes, "rescue")
        if is_kept != "false":
            values[other.own.name] = f"if({is_kept}, {quote_name(other.own.name)}, null)"
    pairs = ", ".join(f"{value} as {quote_name(name)}" for name, value in values.items())
    return f"nullif(to_json(struct({pairs})), '{{}}')" if pairs else "cast(null as string)"


def judge_values(columns: Iterable[str], others: Sequence[OtherColumn], changes: Changes) -> Verdict:
    """Return the verdict on a row of a file in which some columns have other types."""
    bad = {other: other.make_lost_sql(changes, "stop", "nack", "evolve") for other in others}
    messages = ", ".join(f"case when {is_lost} then {other.misfit_message} end" for other, is_lost in bad.items())
    return Verdict(
        is_bad=join_conditions(bad.values()),
        why=f"concat_ws('; ', {messages})" if messages else "cast(null as string)",
        raw=make_row_sql(columns) if others else "cast(null as string)",
        stops=join_conditions(other.make_lost_sql(changes, "stop") for other in others),
    )


def make_row_sql(columns: Iterable[str]) -> str:
    return f"to_json(struct({', '.join(map(quote_name, columns))}))"
