"""Make five months of taxi trips like real exports: each month differs a little, and 2 % of the rows are bad."""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

ROWS = 2_000
"""The number of rows in each month."""
COLUMNS = ("trip_id", "pickup_at", "zone", "passengers", "distance_km", "fare", "cash")


@dataclass(frozen=True)
class Months:
    """The months that were written, and the totals of their good rows."""

    folder: Path
    good: int
    bad: int
    fares: Decimal
    """The sum of `fare` over the good rows."""
    distances: Decimal
    fees: Decimal
    """The sum of `airport_fee`, which only the third month has."""
    ids: frozenset[int]
    """The ids of the good rows."""


def write_months(folder: Path, *, semicolons: bool = False, rows: int = ROWS) -> Months:
    """Write five months, a compressed copy of one month, and a README that holds no data. The second month has its
    columns in another order. The third has an extra column. The fourth has decimal commas: in quotes, or between
    `semicolons`."""
    folder.mkdir(parents=True)
    dice = random.Random(7)
    fares, distances, fees, ids, bad = Decimal(0), Decimal(0), Decimal(0), set(), 0
    for month in range(1, 6):
        columns = {2: COLUMNS[::-1], 3: (*COLUMNS, "airport_fee")}.get(month, COLUMNS)
        lines = []
        for trip, broken in _make_trips(dice, month, rows):
            if broken:
                bad += 1
            else:
                ids.add(int(trip["trip_id"]))
                fares += trip["fare"]
                distances += trip["distance_km"]
                fees += trip["airport_fee"] if month == 3 else 0
            lines.append(_format_trip(trip, broken, columns, "," if month == 4 else "."))
        with (folder / f"trips-2026-0{month}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter=";" if semicolons and month == 4 else ",", lineterminator="\n")
            writer.writerows([columns, *lines])
    packed = folder / "trips-2026-02.csv.gz"
    packed.write_bytes(gzip.compress((folder / "trips-2026-02.csv").read_bytes()))
    (folder / "README.txt").write_text("Trips by month.\n", encoding="utf-8")
    return Months(folder, len(ids), bad, fares, distances, fees, frozenset(ids))


def _make_trips(dice: random.Random, month: int, rows: int) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the trips of a month, each with the way in which it is broken, or an empty string."""
    at = datetime(2026, month, 1)
    for number in range(rows):
        at += timedelta(seconds=dice.randrange(1, 1_000))
        trip = {
            "trip_id": 100_000 * month + number,
            "pickup_at": at,
            "zone": f"{dice.randrange(1, 266):03}",
            "passengers": dice.randrange(1, 7),
            "distance_km": Decimal(dice.randrange(1, 40_000)) / 1000,
            "fare": Decimal(dice.randrange(250, 150_000)) / 100,
            "cash": dice.random() < 0.3,
            "airport_fee": Decimal("1.25"),
        }
        yield trip, dice.choice(["fare", "pickup_at", "passengers", "short"]) if dice.random() < 0.02 else ""


def _format_trip(trip: Mapping[str, Any], broken: str, columns: tuple[str, ...], point: str) -> list[str]:
    wrong = {"fare": "n/a", "pickup_at": "yesterday", "passengers": "two"}
    values = {
        name: str(value).replace(".", point) if isinstance(value, Decimal) else str(value)
        for name, value in trip.items()
    }
    values["cash"] = values["cash"].lower()
    if broken in wrong:
        values[broken] = wrong[broken]
    line = [values[name] for name in columns]
    return line[:3] if broken == "short" else line
