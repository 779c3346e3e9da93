"""JSON keys that occur twice, or in another case, are found in every notation of a line."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from origins.files.changes import Changes
from origins.files.json_lines import LINE
from origins.files.json_text import JsonChanges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("id", "name", "note")
SPELLINGS = {
    '"id"': "id", '"ID"': "ID", r'"\u0069d"': "id", "'id'": "id", '"name"': "name", "'Name'": "Name", '"note"': "note",
    '"n\\u006fte"': "note", '"more"': "more", '"not\\"e"': 'not"e', '""': "",
}  # fmt: skip
VALUES = (
    "1", "null", '"x"', r'"\"id\":"', '"id: 1"', "\"'id':\"", '":"', '"\\\\"', '"O\'Hara"', '{"id": 2}', '["id", ":"]',
    '"name"',
)  # fmt: skip
BLANKS = ("", "", "", " ", "\t")
PLAIN = tuple(f'"{name}"' for name in NAMES)


def make_line(chance: random.Random) -> tuple[str, list[str]]:
    """Return a line, and the keys of its object."""
    keys = chance.choices(list(SPELLINGS) if chance.random() < 0.5 else PLAIN, k=chance.randint(0, 5))
    members = [f"{key}{chance.choice(BLANKS)}:{chance.choice(BLANKS)}{chance.choice(VALUES)}" for key in keys]
    return "{" + f",{chance.choice(BLANKS)}".join(members) + "}", [SPELLINGS[key] for key in keys]


def is_refused(keys: list[str], *, extra: bool) -> bool:
    """Return whether an object with these keys is refused beside the schema."""
    lowered = [key.lower() for key in keys if key.lower() in NAMES]
    is_other = any(key not in NAMES and (extra or key.lower() in NAMES) for key in keys)
    return is_other or len(set(lowered)) < len(lowered)


@pytest.mark.spark
@pytest.mark.parametrize("extra", ["ignore", "nack"])
def test_keys_are_refused_independent_of_their_notation(spark: SparkSession, extra: str) -> None:
    """Lines may use any blanks, quotes and escapes, and values may have any content."""
    chance = random.Random(7)
    lines = [make_line(chance) for _ in range(4_000)]
    types = (LongType(), StringType(), StringType())
    schema = StructType([StructField(name, kind) for name, kind in zip(NAMES, types, strict=True)])
    changes = Changes.of("json", {"extra": extra, "missing": "evolve"}, given=True)
    refusal = JsonChanges(schema=schema, changes=changes, options={}).make_refusal_sql(LINE)
    frame = spark.createDataFrame([(line,) for line, _ in lines], f"{LINE} string")
    found = [row[0] for row in frame.selectExpr(f"{refusal} is not null").collect()]
    wanted = [is_refused(keys, extra=extra == "nack") for _, keys in lines]
    assert [line for (line, _), got, right in zip(lines, found, wanted, strict=True) if got != right] == []
    assert 1_000 < sum(wanted) < 3_500
