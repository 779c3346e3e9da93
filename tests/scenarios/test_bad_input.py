"""Bad input leads to one clear error that names the remedy, and no row is lost."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

from origins.errors import WherryError
from runners.model.run_report import Report, RunError
from tests.scenarios.conftest import ORDERS, Place, make_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


def get_error(report: Report) -> RunError:
    assert report.error is not None
    assert "Traceback" not in str(report.error)
    assert "\tat " not in str(report.error)
    return report.error


def test_a_path_that_does_not_exist_is_named(place: Place) -> None:
    """A typing error in a path is not taken for an empty folder."""
    error = get_error(place.load(ORDERS.replace("landing/", "londing/")).run(check=False))
    assert "londing" in error.message


@pytest.mark.promise("CD-27")
def test_a_gzip_file_cut_short_fails_the_run_and_is_named(place: Place) -> None:
    """No row of the file is delivered. Once the file is complete, a run delivers it."""
    place.land("a.json", [make_order(1)])
    lines = "".join(json.dumps(make_order(number)) + "\n" for number in range(2, 5_000))
    whole = gzip.compress(lines.encode())
    file = place.folder / "landing" / "b.json.gz"
    file.write_bytes(whole[: len(whole) // 2])
    text = ORDERS.replace("landing/*.json", "landing/")
    error = get_error(place.load(text).run(check=False))
    assert "b.json.gz" in error.message
    assert place.ids("tables/orders") == [1]
    file.write_bytes(whole)
    place.load().run()
    assert place.ids("tables/orders") == list(range(1, 5_000))


@pytest.mark.promise("CD-16")
def test_no_session_skips_a_corrupt_file(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run fails and names the file, although Spark's settings let it skip files that it cannot read."""
    (place.folder / "landing").mkdir()
    for name in "abc":
        file = place.folder / "landing" / f"{name}.parquet"
        rows = [{"id": number, "email": f"{number}@example.com", "amount": "1"} for number in range(20)]
        parquet.write_table(pa.Table.from_pylist(rows), file)
        if name == "b":
            content = file.read_bytes()
            file.write_bytes(content[:20] + b"\xff" * 40 + content[60:])
    make = type(place.spark).newSession

    def make_lenient(session: SparkSession) -> SparkSession:
        made = make(session)
        for what in ("CorruptFiles", "MissingFiles"):
            made.conf.set(f"spark.sql.files.ignore{what}", "true")
        return made

    monkeypatch.setattr(type(place.spark), "newSession", make_lenient)
    text = ORDERS.replace("*.json", "*.parquet").replace("format: json", "format: parquet")
    text = text.replace("files: 1", "files: 3")
    error = get_error(place.load(text).run(check=False))
    assert re.search(r"Spark cannot read file:/\S*/landing/b\.parquet: \w", error.message)


def test_a_moved_table_is_recognised_by_its_id_but_an_older_copy_is_refused(place: Place) -> None:
    """For an older copy, the error asks the user to confirm the move."""
    place.land("a.json", [make_order(1)])
    place.load(ORDERS).run()
    shutil.copytree(place.folder / "tables/orders", place.folder / "tables/older")
    place.land("b.json", [make_order(2)])
    place.load(ORDERS).run()
    (place.folder / "tables/orders").rename(place.folder / "tables/moved")
    place.land("c.json", [make_order(3)])
    older = ORDERS.replace("- delta: {path: tables/orders}", "- delta: {path: tables/older}\n    name: orders")
    refused = get_error(place.load(older).run(check=False))
    assert 'wherry run FILE --moved orders --reason "…"' in refused.hint
    place.load(older.replace("tables/older", "tables/moved")).run()
    assert place.ids("tables/moved") == [1, 2, 3]


@pytest.mark.connect
def test_columns_with_unusual_names_arrive_unchanged(place: Place) -> None:
    """Names with dots, spaces, backticks and umlauts work for delivered and for refused rows."""
    rows = [
        {"id": 1, "größe in cm": "7", "a.b": "x", "c`d": "y"},
        {"id": 2, "größe in cm": "?", "a.b": "x", "c`d": "y"},
    ]
    place.land("a.json", rows)
    text = """
name: orders
origin:
  files:
    path: "landing/*.json"
    format: json
    schema: {id: long, "größe in cm": string, "a.b": string, "c`d": string}
stages:
  - cast: {"größe in cm": int}
  - rename: {"a.b": "e.f"}
destinations:
  - delta: {path: tables/orders}
dlq: {window: 0}
"""
    place.load(text).run()
    assert place.rows("tables/orders") == [{"id": 1, "größe in cm": 7, "e.f": "x", "c`d": "y"}]
    assert [json.loads(row["row"]) for row in place.refused()] == [rows[1]]


def test_a_state_that_cannot_be_written_is_reported(place: Place) -> None:
    """The run fails before it reads anything."""
    place.land("a.json", [make_order(1)])
    (place.folder / "blocked").write_text("a file, not a folder")
    with pytest.raises(WherryError, match="cannot be written"):
        place.load(ORDERS + "state: blocked/state\n").run()
