"""Lines of JSON with rare values, in the manner of public suites, and what may be read of them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

DECIMALS = {"price": (10, 2), "rate": (38, 18), "digits": (38, 0)}
COLUMNS = {
    "text": "string",
    **{name: f"decimal({precision},{scale})" for name, (precision, scale) in DECIMALS.items()},
    "n": "bigint",
    "x": "double",
    "s": "struct<text: string, price: decimal(10,2), x: double>",
    "a": "array<string>",
    "prices": "array<decimal(10,2)>",
    "m": "map<string,string>",
    "rates": "map<string,decimal(10,2)>",
    "deep": "array<struct<m: map<string,array<string>>>>",
}
SCHEMA = ", ".join(["id int", *(f"{name} {kind}" for name, kind in COLUMNS.items())])
TEXTS = ("text", "a", "m", "deep")
"""The columns that have only texts."""
NUMBERS = [
    "0", "-0", "1", "-1", "1.10", "1.5", "-1.505", "0.1", "0.30000000000000004", "12345678901234567.89", "1e5", "1E5",
    "1.5e-1", "1e-38", "1e-39", "-1e-39", "1e-40", "0e-50", "1e308", "1e309", "1e400", "-1e400", "5e-324", "1e-400",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551616e-119", "98040789e-70",
    "0e-999999999", "1e-999999999", "1e10000000", "1e-10000000", "1e999999999", "1e99999999999999999999", "9" * 38,
    "9" * 39, "0." + "1" * 30, "0." + "3" * 40, "1.000", "1." + "0" * 45, "1." + "0" * 45 + "1", "100000000.00",
    "99999999.99", "99999999.995", "0.1e+2", "123456789012345678901234567890.5", "0.5", "2.5", "1e0", "1e-2", "1e-3",
    "1000e-3", "12.500e-1", "0.0120e2",
]  # fmt: skip
OTHERS = [
    '"1.10"', '"1e10000000"', '"1E10000000"', '"1E-39"', '" 1.5"', f'"0.{"3" * 43}"', '"12e345678"', "true", "null",
    '"x"', '""', r'"\u0031"', r'"\u2028\uffff\ufffe\u0000"', '"\U0001f600\uffff\ufffe\u2028\u0085"', r'"\ud83d\ude00"',
    '"{\\"b\\": 1.10}"', '"[1.10]"', '"Infinity"', '"NaN"', '"-0"', '"a, b: 1.10, \\"text\\": 2.20"', '"\ufeff"',
]  # fmt: skip
NESTED = [
    '{"b": 1.10}', '{ "b" :\t[1.50,  2e400] , "c": "}" }', "[]", "{}", "[1.10, {}, []]", '[{"b": [[1.10]]}]',
    r'{"b": "\u0041\/\"", "b2": 1e5}', '{"b": "' + "x" * 50 + '\'"}', "[" * 12 + "1.10" + "]" * 12,
    "[null, 1.10, true]",
]  # fmt: skip
_FORMS = {
    "s": '{"text": %, "price": 1, "x": 1e-30}', "a": "[1, %]", "prices": "[%, 1.5]", "m": '{"k": %, "l": 2.0}',
    "rates": '{"k": %}', "deep": '[{"m": {"k": [%, "z"]}}]',
}  # fmt: skip
ODD = [
    "{'id': #, 'text': 1.10}",
    '{"id": #, \'text\': \'it"s\', "note": 1.10}',
    r'{"id": #, "te\u0078t": 1.10}',
    ' { "id" : # , "text" : 1.10 } ',
    '{"id": #, "text": 1.10, "other": {"text": 2.20}}',
    '{"id": #, "other": "\\"text\\": 3.30, ", "text": 1.10}',
    '{"id": #, "other": [{"text": 2.20}], "text": {"text": 1.10}}',
    '{"id": #, "price": 1.10, "text": 1.10, "a": [1.10], "s": {"price": 2.20, "text": 2.20}}',
    '{"id": #, "other": ' + "[" * 30 + "]" * 30 + ', "text": 1.10}',
    '{"id": #, "other": "\ufdd0", "a": [ "\ufdd0", "\\ufdd01.5" ]}',
]
WRONG = '{"id": "wrong"}'
"""A line that is refused. Its batch is decided line by line."""


def list_lines(tokens: Sequence[str] = (*NUMBERS, *OTHERS)) -> list[str]:
    """Return a line for each value in each column."""
    lines = [
        f'{{"id": #, "{name}": {_FORMS.get(name, "%").replace("%", token)}}}' for name in COLUMNS for token in tokens
    ]
    return number_lines([*lines, *(f'{{"id": #, "text": {token}}}' for token in NESTED), *ODD])


def number_lines(lines: Sequence[str]) -> list[str]:
    return [line.replace("#", str(at), 1) for at, line in enumerate(lines)]


def fits(number: Decimal, precision: int, scale: int) -> bool:
    """Return whether a decimal type has this number."""
    try:
        Context(prec=precision, traps=[Inexact, InvalidOperation]).quantize(number, Decimal(1).scaleb(-scale))
    except (Inexact, InvalidOperation):
        return False
    return True


def find_changed(lines: Sequence[str], rows: Mapping[int, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines with a decimal that differs from the one in its row."""
    for at, row in rows.items():
        try:
            value = json.loads(lines[at].replace("'", '"'), parse_float=str, parse_int=str)
        except ValueError:
            continue
        if _differs(value, row):
            yield lines[at]


def _differs(value: Any, read: Any) -> bool:
    if isinstance(read, Decimal):
        return Decimal(str(value)) != read
    if isinstance(read, Mapping) and isinstance(value, Mapping):
        return any(_differs(value.get(name), each) for name, each in read.items())
    if isinstance(read, list) and isinstance(value, list):
        return any(map(_differs, value, read))
    return False


def make_number(chance: random.Random) -> str:
    """Return a number of JSON, with few or many digits."""
    digits = "".join(chance.choices("0123456789", k=chance.choice((1, 2, 5, 17, 19, 25, 38, 39, 60))))
    whole = digits.lstrip("0") or "0"
    fraction = "." + "".join(chance.choices("00123456789", k=chance.choice((1, 2, 3, 18, 40))))
    exponent = (
        f"{chance.choice('eE')}{chance.choice(('', '+', '-'))}{chance.choice((0, 1, 7, 38, 39, 119, 400, 999999))}"
    )
    return chance.choice(("", "-")) + whole + chance.choice(("", fraction)) + chance.choice(("", "", exponent))


def make_text(chance: random.Random) -> str:
    """Return a string of JSON with rare characters, in either form."""
    rare = [*"az09{}[]:,'. ", "\uffff", "\ufffe", "\u2028", "\u0085", "\ufeff", "\0", "\x7f", "\U0001f600", '"', "\\"]
    return json.dumps("".join(chance.choices(rare, k=chance.randrange(8))), ensure_ascii=chance.random() < 0.5)
