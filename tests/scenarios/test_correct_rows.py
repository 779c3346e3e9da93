"""Refused rows are corrected in a spreadsheet, and delivered once."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from runners.command_line import cli
from runners.model.errors import Refusal
from runners.model.events import BatchPlanned, Event
from runners.running.choice import Choice
from runners.running.fix import Fix
from runners.running.replay import Replay
from tests.scenarios.conftest import ORDERS, Place, list_files, make_order

pytestmark = pytest.mark.spark

BAD = [
    make_order(1),
    make_order(2, amount="2,50"),
    make_order(3, amount="-3"),
    make_order(4, amount="4,50"),
    make_order(5, amount="x"),
]


def edit_rows(file: Path, change: Callable[[dict[str, str]], None]) -> None:
    """Change each row of the file, as a user does in a spreadsheet."""
    with file.open(encoding="utf-8-sig", newline="") as source:
        delimiter = ";" if ";" in source.readline() else ","
        source.seek(0)
        rows = list(csv.DictReader(source, delimiter=delimiter))
    for row in rows:
        change(row)
    with file.open("w", newline="") as target:
        writer = csv.DictWriter(target, [*rows[0]], delimiter=";")
        writer.writeheader()
        writer.writerows(rows)


def put_point(row: dict[str, str]) -> None:
    """Replace the decimal comma with a point."""
    row["amount"] = row["amount"].replace(",", ".")


def count_kept(place: Place) -> int:
    """Return how many files of corrected rows the state still holds."""
    return len(list((place.folder / ".wherry/orders/prepared").glob("*")))


@pytest.mark.promise("CD-30")
@pytest.mark.connect
def test_edited_rows_are_delivered_once_and_the_others_wait(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """A preview writes nothing. A row that is refused again waits in its edited form, and a second replay with the same
    file has nothing to do."""
    place.land("1.json", BAD)
    place.load(ORDERS).run()
    file = place.folder / "rows.csv"
    typed = ["dlq", "replay", str(place.folder / "pipeline.yaml"), "--with", str(file)]
    assert place.load().refused.export(file).rows == 4
    edit_rows(
        file,
        lambda row: row.update(amount={"2,50": "2.50", "4,50": "4.50", "x": "-5"}.get(row["amount"], row["amount"])),
    )
    before = list_files(place.folder)
    assert cli.execute([*typed, "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert list_files(place.folder) == before
    assert "3 rows changed, 1 unchanged." in shown.err
    assert "Of 3 rows 2 would pass, 1 would be refused again." in shown.out
    assert '"4,50"  "4.50"  goes to orders' in shown.out
    assert cli.execute([*typed, "--reason", "by hand", "--yes"]) == 0
    assert sorted(str(row["amount"]) for row in place.rows("tables/orders")) == ["1.50", "2.50", "4.50"]
    waiting = place.load().refused.list(waiting=True)
    assert sorted((row["original"]["id"], row["original"]["amount"]) for row in waiting) == [(3, "-3"), (5, "-5")]
    capsys.readouterr()
    assert cli.execute([*typed, "--reason", "by hand", "--yes"]) == 0
    assert "3 rows changed, 1 unchanged. Of these, 3 were replayed before." in capsys.readouterr().err
    assert place.ids("tables/orders") == [1, 2, 4]
    assert (place.load().audit().balanced, count_kept(place)) == (True, 0)


@pytest.mark.promise("CD-30")
def test_a_killed_replay_continues_when_the_same_file_is_given_again(place: Place) -> None:
    """Each row is delivered once. Another file is refused meanwhile."""
    place.land("1.json", [make_order(1), *(make_order(n, amount=f"{n},50") for n in range(2, 8))])
    definition = ORDERS.replace("{files: 1}", "{rows: 2}")
    place.load(definition).run()
    file, other = place.folder / "rows.csv", place.folder / "other.csv"
    place.load().refused.export(file)
    place.load().refused.export(other)
    edit_rows(file, put_point)
    edit_rows(other, lambda row: row.update(amount="0.5"))
    place.kill(definition, "Written", 2, edited=file)
    with pytest.raises(Refusal, match=r"with the fix rows\.csv was cut short"):
        place.load().replay(place.load().refused.correct(other).make_replay(reason="another"))
    for _ in range(2):
        place.load().replay(place.load().refused.correct(file).make_replay(reason="again"))
    amounts = sorted(str(row["amount"]) for row in place.rows("tables/orders"))
    assert amounts == [f"{n}.50" for n in range(1, 8)]
    assert (place.load().audit().balanced, count_kept(place)) == (True, 0)


def test_a_stopped_replay_is_resumed_without_its_file(place: Place) -> None:
    """A normal run keeps the corrected rows. If the state has lost them, the error asks for the same file again."""
    place.land("1.json", [make_order(1), *(make_order(n, amount=f"{n},50") for n in range(2, 8))])
    place.load(ORDERS).run()
    file, pipeline = place.folder / "rows.json", place.load(run__batch__rows="2")
    pipeline.refused.export(file)
    file.write_text(file.read_text().replace(",50", ".50"))

    def listen(event: Event) -> None:
        if isinstance(event, BatchPlanned) and event.batch.number % 2 == 0:
            place.load().stop("the night begins")

    corrected = pipeline.refused.correct(file)
    cut = pipeline.replay(corrected.make_replay(reason="by hand"), listeners=[listen])
    assert (cut.status, cut.read) == ("stopped", 4)
    place.load().run()
    (kept,) = (place.folder / ".wherry/orders/prepared").glob("*")
    kept.rename(place.folder / "aside")
    with pytest.raises(Refusal, match="no longer has the 6 corrected rows") as refused:
        place.load().refused.preview_replay(place.load().refused.find_cut_replay())
    assert "wherry dlq replay FILE --with rows.csv" in str(refused.value.hint)
    (place.folder / "aside").rename(kept)
    with pytest.raises(Refusal, match="was cut short"):
        place.load().replay(Replay(fix=Fix(columns={"amount": "1"}), reason="another"))
    file.unlink()
    again = place.load().refused.find_cut_replay()
    assert place.load().refused.preview_replay(again).passing == 2
    place.load().replay(again)
    assert place.ids("tables/orders") == [1, 2, 3, 4, 5, 6, 7]
    assert count_kept(place) == 0


SCHEMA = (
    "id long, amount string, price decimal(20,3), at timestamp, local timestamp_ntz, day date, bytes binary, "
    "ok boolean, ratio double, names array<string>, by map<string,long>, buyer struct<name:string,age:int>, note string"
)
TYPES = f"""
name: orders
origin:
  files: {{path: "landing/*.json", format: json, schema: "{SCHEMA}"}}
stages:
  - cast: {{amount: "decimal(10,2)"}}
destinations:
  - delta: {{path: tables/orders}}
dlq: {{window: 0}}
"""
FULL = {
    "price": 12345678901234567.125,
    "at": "2026-01-31T06:00:00.123456Z",
    "local": "2026-01-31T06:00:00.5",
    "day": "2026-01-31",
    "bytes": "//4=",
    "ok": True,
    "ratio": 0.1,
    "names": ["a", None, "=1+1", 'say "no"\n'],
    "by": {"x": 1, "ä": None},
    "buyer": {"name": None, "age": 7},
    "note": "",
}
PRICE = '"price": 12345678901234567.125'


def test_an_edited_cell_leaves_the_other_cells_unchanged(place: Place) -> None:
    """All types keep their exact values, and so do empty text, NULL and text that looks like a formula."""
    good, bad, nothing = ({"id": n, "amount": "1" if n == 1 else "x", **FULL} for n in (1, 2, 3))
    line = [json.dumps(each).replace('"price": 1.2345678901234568e+16', PRICE) for each in (good, bad)]
    place.land("1.json", [*line, json.dumps({"id": nothing["id"], "amount": "x", "note": "=1+1"})])
    place.load(TYPES).run()
    file = place.folder / "rows.csv"
    place.load().refused.export(file)
    assert place.load().refused.correct(file).changed == 0
    edit_rows(file, lambda row: row.update(amount="1"))
    corrected = place.load().refused.correct(file)
    assert corrected.changed == 2
    place.load().replay(corrected.make_replay(reason="by hand"))
    first, second, third = sorted(place.rows("tables/orders"), key=lambda row: row["id"])
    assert {**second, "id": 1} == first
    assert (second["price"], second["at"]) == (
        Decimal("12345678901234567.125"),
        datetime(2026, 1, 31, 6, 0, 0, 123456, timezone.utc),
    )
    assert {name: each for name, each in third.items() if each is not None} == {"id": 3, "amount": 1, "note": "=1+1"}


def test_chosen_rows_are_exported_and_corrected_in_python(place: Place) -> None:
    """The corrections are Python values by row id."""
    place.land("1.json", BAD)
    place.load(ORDERS).run()
    file = place.folder / "rows.json"
    exported = place.load().refused.export(file, choice=Choice(stage="require"))
    (row,) = json.loads(file.read_text())
    assert (exported.rows, row["amount"], row["_wherry_code"]) == (1, "-3", "positive_amount")
    values: dict[str, dict[str, Any]] = {row["_wherry_id"]: {"amount": "3", "EMAIL": None}}
    corrected = place.load().refused.correct(values)
    report = place.load().replay(corrected.make_replay(reason="by hand"))
    assert (report.filtered, report.nacked) == (1, 0)
