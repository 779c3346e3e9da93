"""Converts the values of a row between parquet and the JSON of the DLQ."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

from origins.batch import Json
from origins.lazy import pa
from runners.model.row_values import Number, check_value, is_text, parse_edited, write_json

_EXACT = 2**53
"""A float is not exact for every whole number beyond this."""


def make_arrow_type(kind: Json) -> pa.DataType:
    """Return the type of a column of this kind. A kind that parquet does not have becomes text with JSON."""
    if isinstance(kind, Mapping):
        inner: Mapping[str, Any] = kind
        if inner["type"] == "struct" and inner["fields"]:
            return pa.struct([pa.field(each["name"], make_arrow_type(each["type"])) for each in inner["fields"]])
        if inner["type"] == "array":
            return pa.list_(make_arrow_type(inner["elementType"]))
        if inner["type"] == "map":
            return pa.map_(make_arrow_type(inner["keyType"]), make_arrow_type(inner["valueType"]))
        return pa.string()
    if str(kind).startswith("decimal"):
        precision, scale = str(kind)[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    simple: Mapping[str, Callable[[], pa.DataType]] = {
        "boolean": pa.bool_,
        "byte": pa.int8,
        "short": pa.int16,
        "integer": pa.int32,
        "long": pa.int64,
        "float": pa.float32,
        "double": pa.float64,
        "date": pa.date32,
        "binary": pa.binary,
        "timestamp": lambda: pa.timestamp("us", "UTC"),
        "timestamp_ntz": lambda: pa.timestamp("us"),
    }
    return simple.get(str(kind), pa.string)()


def to_arrow_value(value: Any, kind: Json) -> Any:
    """Return the value in the form that `pyarrow` takes. Raises `ValueError` for a value that parquet cannot store."""
    if value is None:
        return None
    if isinstance(kind, Mapping):
        return _to_nested(value, kind)
    if is_text(kind):
        return value
    name = str(kind)
    if name not in _CONVERTERS and not name.startswith("decimal"):
        return write_json(value)
    checked: Any = check_value(value, kind)
    return Decimal(checked) if name.startswith("decimal") else _CONVERTERS[name](checked)


_CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "boolean": bool,
    **dict.fromkeys(("byte", "short", "integer", "long"), int),
    **dict.fromkeys(("float", "double"), float),
    "date": date.fromisoformat,
    "binary": base64.b64decode,
    "timestamp": lambda text: datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=timezone.utc),
    "timestamp_ntz": datetime.fromisoformat,
}


def _to_nested(value: Any, kind: Mapping[str, Any]) -> Any:
    if kind["type"] == "struct" and kind["fields"]:
        return {each["name"]: to_arrow_value(value.get(each["name"]), each["type"]) for each in kind["fields"]}
    if kind["type"] == "array":
        return [to_arrow_value(each, kind["elementType"]) for each in value]
    if kind["type"] == "map":
        entries = value.items() if isinstance(value, Mapping) else [(each["key"], each.get("value")) for each in value]
        kinds = kind["keyType"], kind["valueType"]
        return [tuple(map(to_arrow_value, entry, kinds)) for entry in entries]
    return write_json(value)


def from_arrow_value(value: Any, kind: Json) -> Json:
    """Return a value from parquet, which is not checked yet.

    Other programs write lists for maps, and floats for numbers that may be NULL.
    """
    if value is None:
        return None
    if isinstance(kind, Mapping):
        return _from_nested(value, kind)
    name = str(kind)
    if is_text(kind) and isinstance(value, str):
        return value
    if name not in _CONVERTERS and not name.startswith("decimal"):
        return parse_edited(value) if isinstance(value, str) else _from_any(value)
    if isinstance(value, float) and name not in ("float", "double") and value.is_integer() and abs(value) < _EXACT:
        return Number(int(value))
    return _from_any(value)


def _from_any(value: Any) -> Json:
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        words = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return Number(repr(value)) if math.isfinite(value) else words
    if isinstance(value, int):
        return Number(value)
    if isinstance(value, Decimal):
        return Number(f"{value:f}")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list):
        return [_from_any(each) for each in value]
    if isinstance(value, Mapping):
        return {str(name): _from_any(each) for name, each in value.items()}
    return str(value)


def _from_nested(value: Any, kind: Mapping[str, Any]) -> Json:
    if kind["type"] == "struct" and kind["fields"] and isinstance(value, Mapping):
        kinds = {each["name"]: each["type"] for each in kind["fields"]}
        return {name: from_arrow_value(each, kinds.get(name, "string")) for name, each in value.items()}
    if kind["type"] == "array" and isinstance(value, list):
        return [from_arrow_value(each, kind["elementType"]) for each in value]
    if kind["type"] == "map" and isinstance(value, list):
        pairs = [(each.get("key"), each.get("value")) if isinstance(each, Mapping) else each for each in value]
        keys = [from_arrow_value(key, kind["keyType"]) for key, _ in pairs]
        values = [from_arrow_value(each, kind["valueType"]) for _, each in pairs]
        if is_text(kind["keyType"]):
            return {str(key): each for key, each in zip(keys, values, strict=True)}
        return [{"key": key, "value": each} for key, each in zip(keys, values, strict=True)]
    return parse_edited(value) if isinstance(value, str) else _from_any(value)
