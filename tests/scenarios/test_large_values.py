"""Large values are stored once, are put back where a definition asks for it, and are nowhere else in the pipeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from runners.running.choice import Choice
from runners.running.replay import Replay
from stages.claim_store import PREFIX
from tests.child import WHERRY, clean_environment, run
from tests.scenarios.conftest import Place
from tests.stores.s3 import KEY, REGION, S3, SECRET

pytestmark = [pytest.mark.spark, pytest.mark.connect]

BODIES = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, body string, tags array<string>"}
stages:
  - claim: {path: claims, over: 1KiB, refuse_over: 4KiB}
  - require: {positive_id: "id > 0"}
destinations:
  - delta: {path: tables/orders}
    stages: [unclaim: {path: claims}]
dlq: {window: 1000, threshold: 500}
run: {batch: {files: 1}}
"""
BOTH = BODIES.replace("dlq:", "  - delta: {path: tables/references}\ndlq:")
LONG, HUGE = "x" * 2_000, "y" * 5_000


def make_row(number: int, text: str = "short", *tags: str) -> dict[str, Any]:
    """Return a row."""
    return {"id": number, "body": text, "tags": list(tags)}


def read_bodies(place: Place, table: str = "tables/orders") -> dict[int, str]:
    """Return the texts in a table by id. Each id must occur once."""
    rows = place.rows(table)
    found = {row["id"]: row["body"] for row in rows}
    assert len(found) == len(rows)
    return found


def list_stored(place: Place, kind: str = "files") -> Iterator[str]:
    """Return the values in the store."""
    if kind == "delta":
        return (row["value"].decode() for row in place.rows("claims/table"))
    return (file.read_text() for file in Path(place.folder, "claims", "values").rglob("*") if file.is_file())


def set_store(definition: str, kind: str) -> str:
    """Return the definition with a store of this kind."""
    return definition.replace("path: claims", f"path: claims, format: {kind}")


@pytest.mark.parametrize("kind", ["files", "delta"])
def test_large_values_go_to_the_store_and_come_back_in_straight_batches(place: Place, kind: str) -> None:
    """The first batch with a large value is decided, and later batches of the lane are written straight. Every row is
    accounted for."""
    place.land("1.json", [make_row(1), make_row(2)])
    place.land("2.json", [make_row(3, LONG), make_row(4, "short", LONG, "t")])
    place.land("3.json", [make_row(5, LONG), make_row(6)])
    report = place.load(set_store(BODIES, kind)).run()
    assert (report.read, report.nacked, report.balanced) == (6, 0, True)
    assert read_bodies(place) == {1: "short", 2: "short", 3: LONG, 4: "short", 5: LONG, 6: "short"}
    assert next(row["tags"] for row in place.rows("tables/orders") if row["id"] == 4) == [LONG, "t"]
    assert [*list_stored(place, kind)] == [LONG]
    assert sum(report.ways.values()) == 3
    assert report.ways["straight"] == 2
    assert place.load().audit().json()["problems"] == []


def test_a_decided_batch_holds_only_references(place: Place) -> None:
    """One destination gets values, and the other gets references. The DLQ holds no large value."""
    place.land("1.json", [make_row(1, LONG), make_row(-2, LONG), make_row(3, HUGE), make_row(4)])
    report = place.load(BOTH).run()
    assert (report.read, report.nacked, report.balanced) == (4, 2, True)
    assert read_bodies(place) == {1: LONG, 4: "short"}
    references = read_bodies(place, "tables/references")
    assert references[1].startswith(PREFIX)
    refused = place.refused()
    assert [(row["code"], row["stage"], row["position"]) for row in refused] == [
        ("positive_id", "require", 2),
        ("LARGE", "claim", 3),
    ]
    assert all(len(row["row"]) < 300 and len(row["original"]) < 300 for row in refused)
    assert sorted(list_stored(place)) == [LONG, HUGE]
    entries = json.dumps(place.rows(".wherry/orders/ledger"), default=str)
    assert (LONG in entries, HUGE in entries) == (False, False)


def test_refused_rows_with_references_are_replayed_with_their_values(place: Place) -> None:
    """A row that was too large passes a higher limit. A row that another stage refused passes the mended stage."""
    place.land("1.json", [make_row(-2, LONG), make_row(3, HUGE)])
    place.load(BODIES).run()
    again = place.load(BODIES).replay(Replay(choice=Choice(code="LARGE"), reason="to see"))
    assert (again.read, again.nacked) == (1, 1)
    mended = BODIES.replace("refuse_over: 4KiB", "refuse_over: 5kB").replace("id > 0", "id <> 0")
    report = place.load(mended).replay(Replay(reason="larger bodies are right"))
    assert (report.read, report.nacked, report.balanced) == (2, 0, True)
    assert read_bodies(place) == {-2: LONG, 3: HUGE}
    assert sorted(list_stored(place)) == [LONG, HUGE]


def test_another_pipeline_puts_values_back(place: Place) -> None:
    """It reads references from a table, and uses the same store."""
    place.land("1.json", [make_row(1, LONG), make_row(2)])
    place.load(BOTH).run()
    place.define("")
    other = """
name: second
origin: {delta: {path: tables/references}}
stages: [unclaim: {path: claims, columns: [body]}]
destinations: [delta: {path: tables/second}]
dlq: {window: 10, threshold: 5}
"""
    report = place.load(other).run()
    assert (report.nacked, report.balanced) == (0, True)
    assert read_bodies(place, "tables/second") == {1: LONG, 2: "short"}


def test_the_store_may_be_in_an_object_store(place: Place, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's workers use the access of the run. Spark needs no JARs for the store."""
    access = {"AWS_ENDPOINT_URL": s3.endpoint, "AWS_REGION": REGION}
    for name, value in {**access, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}.items():
        monkeypatch.setenv(name, value)
    place.land("1.json", [make_row(1, LONG), make_row(2), make_row(3, HUGE)])
    definition = BODIES.replace("path: claims", f"path: {s3.make_url('claims', 's3')}")
    report = place.load(definition).run()
    assert (report.nacked, report.balanced, read_bodies(place)) == (1, True, {1: LONG, 2: "short"})
    assert not (place.folder / "claims").exists()


@pytest.mark.long
def test_a_thousand_values_of_5_mib_pass_a_driver_with_2_gib(tmp_path: Path) -> None:
    """Every value is in the table, and the driver never holds many values at the same time."""
    landing, size, each = tmp_path / "landing", 5 * 2**20, 50
    landing.mkdir()
    for number in range(1_000 // each):
        with (landing / f"{number}.json").open("w") as file:
            for row in range(number * each, (number + 1) * each):
                file.write(json.dumps({"id": row, "body": f"{row:016d}" * (size // 16), "tags": []}) + "\n")
    spark = 'spark: {conf: {spark.driver.memory: "2g"}}'
    definition = BODIES.replace("over: 1KiB, refuse_over: 4KiB", "over: 1MiB").replace("id > 0", "id >= 0")
    (tmp_path / "orders.yaml").write_text(f"{definition}{spark}\n")
    done = run([*WHERRY, "run", str(tmp_path / "orders.yaml"), "--json"], clean_environment())
    assert done.returncode == 0, done.stderr[-4_000:]
    report = json.loads(done.stdout)
    assert (report["read"], report["nacked"], report["balanced"]) == (1_000, 0, True)
    found = dict[int, int]()
    rows = DeltaTable(tmp_path / "tables/orders").to_pyarrow_dataset().to_batches(["id", "body"], batch_size=1)
    for row in rows:
        for each_id, text in zip(row["id"].to_pylist(), row["body"].to_pylist(), strict=True):
            assert text == f"{each_id:016d}" * (size // 16)
            found[each_id] = found.get(each_id, 0) + 1
    assert found == dict.fromkeys(range(1_000), 1)
