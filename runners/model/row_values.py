"""The values of a row, in the DLQ's JSON and in the cells of a spreadsheet.

`origins.nack` writes and reads that JSON with Spark. This module checks a person's changes without Spark. A kind is the
type of a column, as Spark's JSON describes it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, TypeGuard

from origins.batch import Json

_NUL = "\0"
_BYTES = "base64:"
"""The prefix of a cell whose text has characters that a spreadsheet cannot hold."""
_UNSAFE = re.compile(r"""'*(?:[=+\-@\t\r\n＝＋－＠]|base64:|""$)""")  # noqa: RUF001 -- a spreadsheet takes them for the others
"""What a spreadsheet may take for a formula, or what has another meaning in a cell. An apostrophe is put before it."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BITS = {"byte": 7, "short": 15, "integer": 31, "long": 63}
_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?|\.\d+)(?P<exponent>[eE][+-]?\d+)?")
_MOMENT = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)(?:[T ](?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.(?P<part>\d{1,9}))?)?)?"
    r" ?(?P<zone>Z|[+-]\d\d(?::?\d\d)?)?"
)
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""The arithmetic that rounds no number."""
_SHOWN = 60


class Number(str):
    """A number that keeps the digits of the JSON."""


class BadValue(ValueError):
    """A value that does not fit its column. The message names the value and what was expected."""


def parse_row(text: str) -> Any:
    """Parse the DLQ's JSON, and keep all digits of its numbers."""
    return json.loads(text, parse_int=Number, parse_float=Number)


def parse_edited(text: str) -> Any:
    """Parse a person's JSON. Raise `BadValue` if it is invalid, or if an object has a name twice."""
    try:
        return make_decoder().decode(text)
    except json.JSONDecodeError as error:
        raise BadValue(f"it is not JSON: {error.msg}, at line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise BadValue("it is too deep") from error


def make_decoder() -> json.JSONDecoder:
    """Return the decoder for a person's JSON."""
    return json.JSONDecoder(
        parse_int=Number, parse_float=Number, parse_constant=_refuse_constant, object_pairs_hook=_pair_names
    )


def _refuse_constant(name: str) -> Json:
    raise BadValue(f'{name} is not JSON; write "{name}" in quotes')


def _pair_names(pairs: Sequence[tuple[str, Json]]) -> Mapping[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadValue(f"the name {twice!r} is there twice")
    return found


def write_json(value: Json, *, indent: int | None = None, _level: int = 0) -> str:
    """Return the value as JSON with the original digits of its numbers. With `indent`, it has several lines."""
    if isinstance(value, Number):
        return str(value)
    if not isinstance(value, list | tuple | Mapping):
        return json.dumps(value, ensure_ascii=False)
    brackets, parts = "[]", [write_json(each, indent=indent, _level=_level + 1) for each in value]
    if isinstance(value, Mapping):
        inner = [write_json(each, indent=indent, _level=_level + 1) for each in value.values()]
        brackets = "{}"
        parts = [f"{json.dumps(name, ensure_ascii=False)}: {each}" for name, each in zip(value, inner, strict=True)]
    if indent is None or not parts:
        return brackets[0] + ", ".join(parts) + brackets[1]
    line = "\n" + " " * indent * (_level + 1)
    return brackets[0] + line + f",{line}".join(parts) + "\n" + " " * indent * _level + brackets[1]


def show_kind(kind: Json) -> str:
    """Return the type with the name that Spark's SQL uses."""
    if isinstance(kind, Mapping):
        return {"array": "list", "udt": "value of this type"}.get(str(kind["type"]), str(kind["type"]))
    return _NAMES.get(str(kind), str(kind))


def check_value(value: Json, kind: Json) -> Json:
    """Return the value in the DLQ's normal form. Raise `BadValue` if it is not of this kind."""
    if value is None:
        return None
    if isinstance(kind, Mapping):
        check: Callable[[Json, Any], Json] = _NESTED.get(str(kind["type"]), _refuse_change)
        return check(value, kind)
    name = str(kind)
    if name.startswith("decimal"):
        return _check_decimal(value, name)
    if is_text(kind):
        return _check_text(value, name)
    return _SIMPLE.get(name, _refuse_change)(value, name)


def _is_json_text(value: Json) -> TypeGuard[str]:
    return isinstance(value, str) and not isinstance(value, Number)


def _refuse(value: Json, kind: Json, why: str = "") -> BadValue:
    shown = f"'{value}'" if _is_json_text(value) else write_json(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    name = show_kind(kind)
    return BadValue(f"{shown} is not {'an' if name[0] in 'aeiou' else 'a'} {name}{why and f' ({why})'}")


def _refuse_change(value: Json, kind: Json) -> Json:
    raise _refuse(value, kind, "a value of this type can only stay as it is, or become NULL")


def _check_text(value: Json, kind: str) -> str:
    if not _is_json_text(value):
        raise _refuse(value, kind)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _refuse(value.encode(errors="replace").decode(), kind, "a character is half of a pair") from error
    return value


def _check_boolean(value: Json, kind: str) -> bool:
    if not isinstance(value, bool):
        raise _refuse(value, kind)
    return value


def _check_whole(value: Json, kind: str) -> Number:
    if not isinstance(value, Number) or not re.fullmatch(r"-?\d{1,40}", value):
        raise _refuse(value, kind)
    found = int(value)
    if not -(2 ** _BITS[kind]) <= found < 2 ** _BITS[kind]:
        raise _refuse(value, kind, "out of range")
    return Number(found)


def _check_decimal(value: Json, kind: str) -> Number:
    if not isinstance(value, Number):
        raise _refuse(value, kind)
    precision, scale = map(int, re.findall(r"\d+", kind))
    number = Decimal(value).normalize(_EXACT)
    if not number:
        return Number("0")
    if -int(number.as_tuple().exponent) > scale:
        raise _refuse(value, kind, f"more than {scale} digits behind the point")
    if number.adjusted() >= precision - scale:
        raise _refuse(value, kind, "out of range")
    return Number(f"{number:f}")


def _check_float(value: Json, kind: str) -> Json:
    if _is_json_text(value) and value in _NOT_FINITE:
        return value
    if not isinstance(value, Number):
        raise _refuse(value, kind)
    found = float(value)
    try:
        found = struct.unpack("f", struct.pack("f", found))[0] if kind == "float" else found
    except OverflowError as error:
        raise _refuse(value, kind, "out of range") from error
    if not math.isfinite(found):
        raise _refuse(value, kind, "out of range")
    return Number(repr(found))


def _check_date(value: Json, kind: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        raise _refuse(value, kind, "write it as 2026-01-31")
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError as error:
        raise _refuse(value, kind, "there is no such day") from error


def _check_moment(value: Json, kind: str) -> str:
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise _refuse(value, kind, "write it as 2026-01-31T06:00:00Z")
    clock = [int(found[name] or 0) for name in ("hour", "minute", "second")]
    part, zone = (found["part"] or "").ljust(9, "0"), found["zone"]
    try:
        moment = datetime(*map(int, found["day"].split("-")), *clock, int(part[:6]))  # type: ignore[arg-type,call-arg]
        if zone and zone != "Z":
            hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or 0)
            apart = timezone(timedelta(hours=hours, minutes=minutes) * (-1 if zone[0] == "-" else 1))
            moment = moment.replace(tzinfo=apart).astimezone(timezone.utc).replace(tzinfo=None)
    except (ValueError, OverflowError) as error:
        raise _refuse(value, kind, "there is no such time") from error
    if part[6:] != "000":
        raise _refuse(value, kind, "at most 6 digits of a second")
    if kind == "timestamp_ntz" and zone:
        raise _refuse(value, kind, "it has no time zone")
    return moment.isoformat(timespec="microseconds") + ("Z" if kind == "timestamp" else "")


def _check_binary(value: Json, kind: str) -> str:
    if not _is_json_text(value):
        raise _refuse(value, kind)
    try:
        return base64.b64encode(base64.b64decode(value, validate=True)).decode()
    except ValueError as error:
        raise _refuse(value, kind, "write its bytes in base64") from error


def _check_variant(value: Json, kind: str) -> Json:
    if isinstance(value, list):
        return [_check_variant(each, kind) for each in value]
    if isinstance(value, Mapping):
        return {_check_text(name, "string"): _check_variant(each, kind) for name, each in value.items()}
    return _check_text(value, "string") if _is_json_text(value) else value


_SIMPLE: Mapping[str, Callable[[Json, str], Json]] = {
    "boolean": _check_boolean,
    **dict.fromkeys(_BITS, _check_whole),
    "float": _check_float,
    "double": _check_float,
    "date": _check_date,
    "timestamp": _check_moment,
    "timestamp_ntz": _check_moment,
    "binary": _check_binary,
    "variant": _check_variant,
}


def _check_array(value: Json, kind: Mapping[str, Json]) -> Json:
    if not isinstance(value, list):
        raise _refuse(value, kind)
    return [_check_inner(each, kind["elementType"], f"[{at}]") for at, each in enumerate(value, 1)]


def _check_struct(value: Json, kind: Mapping[str, Any]) -> Json:
    if not isinstance(value, Mapping):
        raise _refuse(value, kind)
    names = [str(field["name"]) for field in kind["fields"]]
    given = {match_name(str(name), names): each for name, each in value.items()}
    if None in given:
        unknown = next(name for name in value if match_name(str(name), names) is None)
        raise BadValue(f"there is no field {unknown!r}; there are: {', '.join(names)}")
    return {
        name: _check_inner(given.get(name), field["type"], f".{name}")
        for name, field in zip(names, kind["fields"], strict=True)
    }


def _check_map(value: Json, kind: Mapping[str, Any]) -> Json:
    if str(kind["keyType"]).startswith("string"):
        if not isinstance(value, Mapping):
            raise _refuse(value, kind)
        return {
            _check_text(name, "string"): _check_inner(each, kind["valueType"], f".{name}")
            for name, each in value.items()
        }
    if not isinstance(value, list) or not all(
        isinstance(each, Mapping) and {*each} <= {"key", "value"} for each in value
    ):
        raise _refuse(value, kind, 'write it as a list of {"key": …, "value": …}')
    found: list[Json] = []
    for at, each in enumerate(value, 1):
        assert isinstance(each, Mapping)
        if each.get("key") is None:
            raise BadValue(f"[{at}]: an entry of a map needs a key")
        key = _check_inner(each["key"], kind["keyType"], f"[{at}].key")
        found.append({"key": key, "value": _check_inner(each.get("value"), kind["valueType"], f"[{at}].value")})
    keys = [write_json(each["key"]) for each in found]  # type: ignore[call-overload,index]
    if len({*keys}) < len(keys):
        raise BadValue("a map has the same key twice")
    return found


def _check_inner(value: Json, kind: Json, where: str) -> Json:
    try:
        return check_value(value, kind)
    except BadValue as error:
        inner = str(error)
        raise BadValue(f"{where}{inner}" if inner[0] in ".[" else f"{where}: {inner}") from error


_NESTED: Mapping[str, Callable[[Json, Any], Json]] = {"array": _check_array, "struct": _check_struct, "map": _check_map}


def match_name(name: str, names: Sequence[str]) -> str | None:
    """Return the name that is meant, or None: the same name, or else the only one in another case of letters."""
    if name in names:
        return name
    alike = [each for each in names if each.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def keep_if_same(value: Json, original: Json, kind: Json) -> Json:
    """Return the value in the DLQ's normal form, or the original itself if both mean the same. May raise `BadValue`."""
    if _is_same(value, original):
        return original
    checked = check_value(value, kind)
    try:
        return original if _is_same(checked, check_value(original, kind)) else checked
    except BadValue:
        return checked


def _is_same(one: Json, other: Json) -> bool:
    return write_json(one) == write_json(other)


def is_exact(kind: Json) -> bool:
    """Whether it is a type of whole numbers or of decimals."""
    return kind in _BITS or str(kind).startswith("decimal")


def is_text(kind: Json) -> bool:
    """Whether values of this kind are text."""
    return isinstance(kind, str) and kind.startswith(("string", "varchar", "char"))


def show_cell(value: Json, kind: Json) -> str:
    """Return the value as a cell of a spreadsheet. NULL is an empty cell."""
    if value is None:
        return ""
    if _is_json_text(value) and not isinstance(kind, Mapping) and kind != "variant":
        return show_text(value)
    return write_json(value)


def show_text(text: str) -> str:
    """Return the text as a cell that is not empty and that no spreadsheet takes for a formula."""
    if text == "":
        return '""'
    if _CONTROL.search(text):
        return _BYTES + (text[1:] if text.startswith(_NUL) else base64.b64encode(text.encode()).decode())
    return f"'{text}" if _UNSAFE.match(text) else text


def parse_text(cell: str) -> str:
    """Return the text that a cell shows. May raise `BadValue`."""
    if cell == '""':
        return ""
    if cell.startswith(_BYTES):
        try:
            held = base64.b64decode(cell.removeprefix(_BYTES), validate=True)
        except ValueError as error:
            raise BadValue(
                f"what stands behind {_BYTES} is not base64; write '{_BYTES} for this text itself"
            ) from error
        with contextlib.suppress(UnicodeDecodeError):
            text = held.decode()
            if not text.startswith(_NUL):
                return text
        return _NUL + base64.b64encode(held).decode()
    return cell[1:] if cell.startswith("'") and _UNSAFE.match(cell) else cell


def parse_cell(cell: str, kind: Json) -> Json:
    """Return the value that a cell shows, before `check_value`. Raise `BadValue` if the cell cannot be read."""
    if cell == "":
        return None
    if is_text(kind):
        return parse_text(cell)
    if not cell.strip():
        raise _refuse(cell, kind)
    if isinstance(kind, Mapping) or kind == "variant":
        found: Json = parse_edited(cell)
        return found
    text = parse_text(cell).strip()
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.lower(), text)
    if is_exact(kind) or kind in ("float", "double"):
        found_number = _NUMBER.fullmatch(text)
        if found_number is None:
            return text
        if found_number["exponent"] and kind not in ("float", "double"):
            raise _refuse(text, kind, "a spreadsheet may have rounded it; write all digits")
        return Number(text)
    return text
