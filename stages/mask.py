"""`mask`: makes values of columns unreadable."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from origins.lazy import Column, DataFrame, F, SparkSession, T
from origins.nack import REASON
from origins.names import HIDDEN
from stages.expressions import check_names
from stages.rows import Rows
from stages.stage import Stage, check_columns

_WHOLE = ("hash", "redact", "erase")
_PARTLY = ("keep_last", "truncate")
_REDACTED = "***"
_INNER, _OUTER = f"{HIDDEN}inner", f"{HIDDEN}outer"
_BLOCK = 64
"""The bytes in a block of SHA-256."""


@dataclass(frozen=True, kw_only=True)
class Mask(Stage):
    """Makes values of columns unreadable. NULL stays NULL.

    Example:
        mask:
          columns: {email: hash, card: {keep_last: 4}}
          salt: "${secret:SALT}"
    """

    columns: Mapping[str, str | Mapping[str, int]]
    """How to mask each column, by its name: `hash`, `redact`, `erase`, `{keep_last: 4}` or `{truncate: 3}`."""
    salt: str | None = field(default=None, repr=False, metadata={"secret": True})
    """A secret that goes into every hash, as `${secret:NAME}`. Without it a person could find values by trying them."""

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping) or not self.columns:
            raise ValueError(f"columns: expected a mapping from columns to ways of masking, got {self.columns!r}")
        check_names("columns", self.columns)
        for name, how in self.columns.items():
            _check_how(f"columns.{name}", how)
        hashed = [name for name, how in self.columns.items() if how == "hash"]
        if hashed and not (isinstance(self.salt, str) and self.salt):
            raise ValueError(f"salt: expected a secret to hash {hashed[0]} with, such as ${{secret:NAME}}")

    def apply(self, rows: Rows) -> Rows:
        check_columns(self.columns, rows)
        masked = {
            rows.spell_name(name): _mask_column(rows, name, how) for name, how in self.columns.items() if how != "hash"
        }
        hashed = [rows.spell_name(name) for name, how in self.columns.items() if how == "hash"]
        return _hash_columns(rows.with_columns(masked), hashed, self.salt or "")


def _hash_columns(rows: Rows, names: list[str], salt: str) -> Rows:
    """Return the rows with these columns replaced by HMAC-SHA-256.

    The pads of the salt are in a row of a joined table. Spark shows expressions in plans and messages, but not rows.
    """
    if not names:
        return rows
    put = {name: f"{HIDDEN}{index}" for index, name in enumerate(names)}
    tried = {}
    for name in names:
        inner = F.sha2(F.concat(F.col(_INNER), _to_text(rows, name).cast("binary")), 256)
        tried[put[name]] = F.sha2(F.concat(F.col(_OUTER), F.unhex(inner)), 256)
    beside = rows.beside(_make_pads(rows.frame.sparkSession, salt), {})
    return beside.attempt(tried, F.lit(None).cast(REASON), put)


def _make_pads(spark: SparkSession, salt: str) -> DataFrame:
    """Return one row with the two pads of the salt that HMAC puts before the hashed values."""
    key = salt.encode()
    key = (hashlib.sha256(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    pads = tuple(bytearray(byte ^ pad for byte in key) for pad in (0x36, 0x5C))
    return spark.createDataFrame([pads], f"{_INNER} binary, {_OUTER} binary")


def _mask_column(rows: Rows, name: str, how: str | Mapping[str, int]) -> Column:
    value = rows.column(name)
    if how == "redact":
        return F.when(value.isNotNull(), F.lit(_REDACTED))
    if isinstance(how, str):
        return F.lit(None).cast(rows.schema[rows.spell_name(name)].dataType)
    ((kind, count),) = how.items()
    text = _to_text(rows, name)
    if kind == "truncate":
        return F.substring(text, 1, count)
    hidden = F.when(F.length(text) > count, F.length(text) - count).otherwise(F.length(text))
    return F.concat(F.repeat(F.lit("*"), hidden), F.substring(text, hidden + 1, F.lit(count)))


def _to_text(rows: Rows, name: str) -> Column:
    """Return the column as text. Raise ValueError if a value has several parts, or is bytes."""
    kind = rows.schema[rows.spell_name(name)].dataType
    if isinstance(kind, T.ArrayType | T.BinaryType | T.MapType | T.StructType | T.VariantType):
        raise ValueError(f"column {name} is {kind.simpleString()}, not text; redact or erase it, or cast it before")
    return rows.column(name).cast("string")


def _check_how(field: str, how: object) -> None:
    expected = f"expected {', '.join(_WHOLE)}, {{keep_last: 4}} or {{truncate: 3}}"
    if isinstance(how, Mapping) and len(how) == 1:
        ((kind, count),) = how.items()
        if kind not in _PARTLY:
            raise ValueError(f"{field}: {expected}, got {kind!r}{_suggest_word(kind, _PARTLY)}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"{field}.{kind}: expected a whole number of at least 1, got {count!r}")
    elif not isinstance(how, str) or how not in _WHOLE:
        raise ValueError(f"{field}: {expected}, got {how!r}{_suggest_word(how, _WHOLE)}")


def _suggest_word(word: object, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(str(word).lower(), known, n=1)
    return f"; did you mean '{near[0]}'?" if near else ""
