"""Make twelve exports of invoices as text: most are alike, some are odd, and 2 % of their rows are bad."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

AMOUNTS = tuple(f"amount_{number}" for number in range(1, 15))
TEXTS = ("country", "name", "code", "note")
COLUMNS = ("id", "day", "booked_at", *AMOUNTS, *TEXTS)
"""Of these 21 columns, 17 hold numbers and times."""
LEFT_OUT = "invoices-2026-08.json"
"""The only file that cannot be read: lines of JSON in UTF-16."""


@dataclass(frozen=True)
class Exports:
    """The files that were written, and what their good rows have."""

    folder: Path
    bad: int
    totals: Mapping[int, Decimal]
    """The sum of all amounts of each good row, by its id."""


def write_exports(folder: Path, kind: str, rows: int) -> Exports:
    """Write twelve files of this kind, `csv` or `json`, with this many rows each, always the same ones."""
    folder.mkdir(parents=True)
    dice, totals, bad = random.Random(12), dict[int, Decimal](), 0
    for month in range(1, 13):
        name, lines = f"invoices-2026-{month:02}.{kind}", []
        for number in range(1, rows + 1):
            row = _make_row(dice, 1_000 * month + number, month)
            is_bad = dice.random() < 0.02
            counts = name != LEFT_OUT
            bad += is_bad and counts
            if counts and not is_bad:
                totals[int(row["id"])] = sum((Decimal(row[each]) for each in AMOUNTS), Decimal(0))
            lines.append({**row, dice.choice(COLUMNS[1:17]): "n/a"} if is_bad else row)
        shape = _SHAPES[kind].get(month, lambda rows: rows)
        (folder / name).write_bytes(_WRITERS[kind](month, [*shape(lines)]))
    return Exports(folder, bad, totals)


def _make_row(dice: random.Random, number: int, month: int) -> dict[str, str]:
    day = date(2026, month, 1) + timedelta(days=dice.randrange(28))
    at = datetime(2026, month, 1) + timedelta(seconds=dice.randrange(2_000_000))
    texts = {
        "country": dice.choice(["AT", "BR", "NG", "JP"]),
        "name": dice.choice(["Ada", "Björn", "Inês", "Łucja"]),
        "code": f"{dice.randrange(1_000):05}",
        "note": dice.choice(["", "paid", "late, again", 'said "no"']),
    }
    amounts = {each: str(Decimal(dice.randrange(-500_000, 9_000_000)) / 100) for each in AMOUNTS}
    return {"id": str(number), "day": str(day), "booked_at": str(at), **amounts, **texts}


Rows = Sequence[Mapping[str, str]]


def _with_commas(rows: Rows) -> Iterator[Mapping[str, str]]:
    yield from ({**row, **{each: row[each].replace(".", ",") for each in AMOUNTS}} for row in rows)


def _with_breaks(rows: Rows) -> Iterator[Mapping[str, str]]:
    yield from ({**row, "note": f"{row['note']}\nsecond line"} for row in rows)


def _turned(rows: Rows) -> Iterator[Mapping[str, str]]:
    yield from ({name: row[name] for name in reversed([*row])} for row in rows)


def _with_one_more(rows: Rows) -> Iterator[Mapping[str, str]]:
    yield from ({**row, "channel": "web"} for row in rows)


_SHAPES: Mapping[str, Mapping[int, Callable[[Rows], Iterator[Mapping[str, str]]]]] = {
    "csv": {3: _with_commas, 5: _with_breaks, 6: _turned, 11: _with_one_more},
    "json": {3: _with_commas, 6: _turned, 11: _with_one_more},
}


def _write_csv(month: int, rows: Rows) -> bytes:
    """Return the text of a month. One has semicolons, one is in UTF-16, and one begins with a mark."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [*rows[0]], delimiter=";" if month == 9 else ",", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode({8: "utf-16", 12: "utf-8-sig"}.get(month, "utf-8"))


def _write_json(month: int, rows: Rows) -> bytes:
    """Return the text of a month. One is an array, and one has lines in UTF-16."""
    objects = [json.dumps(row, ensure_ascii=False) for row in rows]
    text = f"[{', '.join(objects)}]" if month == 9 else "".join(f"{each}\n" for each in objects)
    return text.encode("utf-16" if month == 8 else "utf-8")


_WRITERS: Mapping[str, Callable[[int, Rows], bytes]] = {"csv": _write_csv, "json": _write_json}
