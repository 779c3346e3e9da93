"""Files change during the life of a pipeline. The schema and the tables grow, and no row is lost."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.origins.test_odd_files import draw_file, split_lines
from tests.scenarios.conftest import Place
from tests.scenarios.test_any_files import get_raw

pytestmark = pytest.mark.spark
PAGE = (Path(__file__).parents[2] / "origins/docs/files-that-change.md").read_text()
SHOP = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, on_change: {extra: evolve, wider: evolve}SCHEMA}
destinations:
  - delta: {path: tables/orders}
dlq: {window: 0}
run: {batch: {files: 1}}
"""
INFERRED = SHOP.replace("SCHEMA", "")
TWO = f"{INFERRED}".replace("dlq:", "  - delta: {path: tables/copy}\ndlq:")


def read_columns(place: Place, table: str) -> list[tuple[str, str]]:
    """Return the columns of a table."""
    return place.spark.read.format("delta").load(str(place.folder / table)).dtypes


@pytest.mark.long
def test_new_columns_reach_the_table_and_a_decided_batch_keeps_its_schema(place: Place) -> None:
    """The run is killed when the batch with the first new column is decided. Then another column arrives."""
    place.land("1.json", [{"id": 1, "s": {"a": 1}}])
    assert place.load(TWO).run().status == "succeeded"
    place.land("2.json", [{"id": 2, "s": {"a": 2, "b": "x"}, "region": "north"}])
    place.kill(TWO, "BatchDecided", 2)
    place.land("3.json", [{"id": 3, "s": {"a": 3}, "region": "south", "vip": True}])
    report = place.load().run()
    assert (report.status, report.balanced, report.read) == ("succeeded", True, 2)
    for table in ("tables/orders", "tables/copy"):
        assert sorted(place.rows(table), key=lambda row: int(row["id"])) == [
            {"id": 1, "s": {"a": 1, "b": None}, "region": None, "vip": None},
            {"id": 2, "s": {"a": 2, "b": "x"}, "region": "north", "vip": None},
            {"id": 3, "s": {"a": 3, "b": None}, "region": "south", "vip": True},
        ]


def test_a_declared_schema_grows_too_and_stays_grown(place: Place) -> None:
    """New columns come after the declared ones, and whole numbers get wider. A later file without them has NULL
    there."""
    definition = SHOP.replace("SCHEMA", ', schema: "id int, note string"')
    place.land("1.json", [{"id": 1, "note": "a"}])
    first = place.load(definition).run()
    place.land("2.json", [{"id": 3_000_000_000, "note": "b", "region": "north"}])
    second = place.load().run()
    place.land("3.json", [{"id": 3, "note": "c"}])
    third = place.load().run()
    assert read_columns(place, "tables/orders") == [("id", "bigint"), ("note", "string"), ("region", "string")]
    assert place.ids("tables/orders") == [1, 3, 3_000_000_000]
    assert (first.nacked, second.nacked, third.nacked) == (0, 0, 0)
    said = 'origin: changed schema. To declare it:  schema: "id bigint, note string, region string"'
    assert (first.notices, second.notices, third.notices) == ((), (said.replace("origin", "files"),), ())


def test_an_inferred_schema_is_pinned_and_printed_for_the_definition(place: Place) -> None:
    """All columns of CSV are text. The printed schema means the same in the definition, and later files change
    nothing."""
    definition = """
name: orders
origin: {files: {path: "landing/*", format: csv, on_change: {missing: evolve}SCHEMA}}
destinations: [{delta: {path: tables/orders}}]
dlq: {window: 0}
"""
    landing = place.folder / "landing"
    landing.mkdir()
    (landing / "1.csv").write_text("id,two words\n1,a\n")
    first = place.load(definition.replace("SCHEMA", "")).run()
    (said,) = first.notices
    (pasted,) = re.findall('schema: ".*"$', said)
    assert pasted == 'schema: "id string, `two words` string"'
    (landing / "2.csv").write_text("two words\n2\n")
    second = place.load().run()
    third = place.load(definition.replace("SCHEMA", f", {pasted}")).run()
    assert (second.notices, second.nacked, third.status) == ((), 0, "succeeded")
    assert sorted(map(str, place.rows("tables/orders"))) == sorted(
        map(str, [{"id": "1", "two words": "a"}, {"id": None, "two words": "2"}])
    )


def test_a_change_of_the_schema_stops_the_run_until_a_policy_is_set(place: Place) -> None:
    """Nothing of the batch is delivered, and the error has the code `SCHEMA`. Then `_rescued` keeps the value, and
    `evolve` with the documented statement restores it."""
    stops = INFERRED.replace("on_change: {extra: evolve, wider: evolve}", "on_change: POLICY")
    place.land("1.json", [{"id": 1}])
    assert place.load(stops.replace("POLICY", "{}")).run().status == "succeeded"
    place.land("2.json", [{"id": 2, "region": "north"}, {"id": "x"}])
    stopped = place.load().run(check=False)
    assert stopped.error is not None
    assert (stopped.status, stopped.error.code) == ("failed", "SCHEMA")
    assert stopped.error.message.endswith("2.json: the schema has no region")
    assert place.ids("tables/orders") == [1]
    rescued = place.load(stops.replace("POLICY", "{extra: rescue, other: rescue}")).run()
    assert (rescued.read, rescued.nacked) == (2, 0)
    place.land("3.json", [{"id": 3, "region": "south"}])
    assert place.load(stops.replace("POLICY", "{extra: evolve, other: rescue}")).run().status == "succeeded"
    (statement,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    place.spark.sql(statement.replace("UPDATE orders", f"UPDATE delta.`{place.folder}/tables/orders`"))
    rows = {(row["id"], row["region"], row["_rescued"]) for row in place.rows("tables/orders")}
    assert rows == {
        (1, None, None),
        (2, "north", '{"region":"north"}'),
        (None, None, '{"id":"x"}'),
        (3, "south", None),
    }


def draw_objects(chance: random.Random) -> list[str]:
    """Return JSON objects with keys and values that may or may not fit the schema."""
    values = [1, 2**40, "x", None, 1.5, {"a": 1}, {"a": "x", "b": 2}, [1]]
    keys = ["id", "note", "ID", "s", "new", "other"]
    return [
        json.dumps({key: chance.choice(values) for key in chance.sample(keys, chance.randint(0, 4))})
        for _ in range(chance.randint(0, 12))
    ]


def draw_json_lines(chance: random.Random) -> tuple[bytes, list[str]]:
    """Return lines of JSON, mixed with arbitrary lines."""
    made = "\n".join(draw_objects(chance)).encode() + b"\n" + draw_file(chance)
    return made, split_lines("json", made)


def draw_json_array(chance: random.Random) -> tuple[bytes, list[str]]:
    """Return a file with one JSON array, which may be invalid, and its rows."""
    found = draw_objects(chance)
    made = "[" + ",\n".join(found) + "]" + chance.choice(["", "", "\n", "]", "{}"])
    return made.encode(), [made] if made[-2:] in ("]]", "{}") else found


def draw_csv(chance: random.Random) -> tuple[bytes, list[str]]:
    """Return CSV with some of the columns, in any order, and with other columns."""
    names = chance.sample(["id", "note", "s", "new", "other"], chance.randint(1, 5))
    lines = [
        ",".join(chance.choice(["1", str(2**40), "x", "", "1.5"]) for _ in names) for _ in range(chance.randint(0, 12))
    ]
    made = "\n".join([",".join(names), *lines, ""]).encode() + draw_file(chance)
    return made, split_lines("csv", made)


POLICIES = {
    "nack": "{missing: nack, extra: nack}",
    "rescue": "{missing: evolve, extra: rescue, wider: rescue, other: rescue, corrupt: rescueDOUBLED}",
    "evolve": "{missing: evolve, extra: evolve, wider: evolve, other: rescue}",
}
DOUBLED = {"csv": "", "json": ", doubled: keep_last"}
"""The policy for JSON keys that occur twice. A rescue keeps the line with the key."""


@pytest.mark.promise("CD-16", "DQ-01")
@pytest.mark.parametrize(
    ("kind", "content", "options", "policy"),
    [
        ("csv", draw_csv, "", "rescue"),
        ("json", draw_json_lines, "", "nack"),
        ("json", draw_json_array, ", options: {multiLine: true}", "evolve"),
    ],
    ids=["csv", "json", "json array"],
)
def test_under_every_policy_every_line_is_delivered_or_refused_once(
    place: Place, kind: str, content: Callable[[random.Random], tuple[bytes, list[str]]], options: str, policy: str
) -> None:
    """The DLQ has the file and the raw content of each refused line, with the code of a change or of a bad line."""
    chance = random.Random(f"{kind} {policy}")
    landing = place.folder / "landing"
    landing.mkdir()
    lines: Counter[tuple[str, str]] = Counter()
    for number in range(20):
        made, found = content(chance)
        (landing / f"{number:02}").write_bytes(made)
        lines.update((f"{number:02}", line) for line in found)
    s = "struct<a: int>" if kind == "json" else "int"
    definition = f"""
name: orders
origin:
  files: {{path: "landing/*", format: {kind}, schema: "id int, note string, s {s}", metadata: [file_name],
           on_change: {POLICIES[policy].replace("DOUBLED", DOUBLED[kind])}{options}}}
destinations: [{{delta: {{path: tables/orders}}}}]
dlq: {{window: 0}}
"""
    report = place.load(definition).run()
    refused = Counter((row["message"].partition(": ")[0], get_raw(row["original"])) for row in place.refused())
    delivered = place.rows("tables/orders")
    per_file = Counter(row["file_name"] for row in delivered)
    assert report.balanced is True
    assert report.read == lines.total() == per_file.total() + refused.total()
    assert refused <= lines
    assert per_file == Counter(name for name, _ in (lines - refused).elements())
    kept = [json.loads(row["_rescued"]) for row in delivered if row.get("_rescued")]
    whole = Counter(row["_line"] for row in kept if "_line" in row)
    assert whole <= Counter(line for _, line in lines.elements())
    assert {row["code"] for row in place.refused()} <= {"PARSE", "SCHEMA"}
    assert bool(refused) is (policy != "rescue")
    assert bool(kept) is (policy != "nack")
    assert bool(whole) is (policy == "rescue")


KINDS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int32(), [1, 7]),
    (pa.int64(), [1, 2**40]),
    (pa.string(), ["1", "x", "", str(2**40)]),
    (pa.float64(), [1.5, 1e300]),
    (pa.decimal128(12, 2), [Decimal("1.50"), Decimal("2.00")]),
    (pa.bool_(), [True]),
    (pa.date32(), [date(2026, 1, 2)]),
    (pa.list_(pa.int64()), [[1], []]),
    (pa.struct({"a": pa.int64()}), [{"a": 1}, {"a": 2**40}]),
    (pa.struct({"a": pa.string()}), [{"a": "1"}, {"a": "x"}, {"a": None}]),
    (pa.struct({"a": pa.int32(), "b": pa.string()}), [{"a": 1, "b": "y"}]),
]
WANTED = {"id": KINDS[0], "note": KINDS[2], "s": (pa.struct({"a": pa.int32()}), [{"a": 1}])}


def holds(written: Any, found: Any) -> bool:
    """Whether no written value is NULL in the found value."""
    if isinstance(written, dict) and isinstance(found, dict):
        return all(holds(value, found[key]) for key, value in written.items() if key in found)
    return written is None or found is not None


@pytest.mark.promise("CD-16", "DQ-01")
def test_every_row_of_parquet_is_delivered_or_refused_once(place: Place) -> None:
    """Rows are identified by their keys. Each value of a delivered row is in its column or in `_rescued`, for all types
    in the files."""
    chance = random.Random("each its own")
    landing = place.folder / "landing"
    landing.mkdir()
    written: dict[str, dict[str, Any]] = {}
    for number in range(30):
        names = chance.sample([*WANTED, "new", "other"], chance.randint(1, 5)) if number % 3 else [*WANTED]
        types = {name: chance.choice(KINDS) if chance.random() < 0.4 else WANTED.get(name, KINDS[0]) for name in names}
        columns = {name: [chance.choice([None, *values]) for _ in range(4)] for name, (_, values) in types.items()}
        keys = [f"{number:02}/{row}" for row in range(4)]
        arrays = {name: pa.array(columns[name], kind) for name, (kind, _) in types.items()}
        parquet.write_table(pa.table({"key": keys, **arrays}), landing / f"{number:02}")
        written.update((key, {name: columns[name][row] for name in names}) for row, key in enumerate(keys))
    definition = """
name: orders
origin:
  files: {path: "landing/*", format: parquet, schema: "key string, id int, note string, s struct<a: int>",
           metadata: [file_name], on_change: {missing: evolve, extra: ignore, wider: nack, other: rescue}}
destinations: [{delta: {path: tables/orders}}]
dlq: {window: 0}
"""
    report = place.load(definition).run()
    refused = [(row["message"][:2], json.loads(get_raw(row["original"]))["key"]) for row in place.refused()]
    delivered = place.rows("tables/orders")
    assert (report.balanced, report.read) == (True, len(written))
    assert sorted([*(key for _, key in refused), *(row["key"] for row in delivered)]) == sorted(written)
    assert all(key.startswith(name) for name, key in refused)
    for row in delivered:
        kept = json.loads(row.get("_rescued") or "{}")
        assert row["file_name"] == row["key"][:2]
        for name in WANTED.keys() & written[row["key"]].keys():
            assert name in kept or holds(written[row["key"]][name], row.get(name)), (row, written[row["key"]])
    assert {row["code"] for row in place.refused()} <= {"PARSE", "SCHEMA"}
    assert any(row.get("_rescued") for row in delivered)
    assert refused
