"""Every way to a row of CSV gives the exact text, or refuses the line. Spark's own reader is the measure."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from origins.files import Files
from origins.files.csv_rows import parse_fields
from origins.files.json_lines import LINE
from origins.nack import REFUSED
from tests.origins.test_on_change import plan_batch
from tests.values.json_cases import DECIMALS, NUMBERS, fits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
FIELDS = [
    "z\uffffx", "\uffff", "\uffffx", "\ufdd0\uffff\ufdd2", "\ufdd0\ufdd1", "\ufffeq", "\ufffe", "q\ufffe",
    "\ufffex\ufffe", "a\u2028b", "\u2028", "a\u0085b",
    "\0x", "x\0", "a\x1cb", "\U0001f600", "\ufeffx", "plain", "a b", " lead", "trail ", "\ttab\t", '"quoted"', '"a,b"',
    '"say ""x"""', 'mid"dle', "it's", "a;b", "a|b", r"back\slash", r'"back\"', '""', '"\uffff"', '"\ufffe,x"', "\x7f",
    "=1+1", "NaN", "null", "ä", "e\u0301", '"\ufeff"', "\x01", "-",
]  # fmt: skip
"""Fields in the manner of csv-spectrum, and rare characters."""
SCHEMA = "id int, text string, last string"
OPTIONS: list[dict[str, Any]] = [{}, {"sep": ";"}, {"comment": "#"}]
RARE = [
    "a",
    "b",
    "\uffff",
    "\ufffe",
    "\ufdd0",
    "\ufdd1",
    "\u2028",
    "\u0085",
    "\ufeff",
    "\0",
    "\x7f",
    "\U0001f600",
    "'",
    ";",
    " ",
]


def write_fields(folder: Path, fields: Sequence[str], options: Mapping[str, Any], *more: str) -> Path:
    """Write a line for each field, and more lines. Return the folder."""
    sep, end = options.get("sep", ","), options.get("lineSep", "\n")
    lines = [["id", "text", "last"], *([str(at), text, f"<{at}>"] for at, text in enumerate(fields))]
    folder.mkdir(parents=True)
    text = end.join([*(sep.join(line) for line in lines), *more])
    (folder / "a.csv").write_text(text, encoding="utf-8", newline="")
    return folder


def read(spark: SparkSession, folder: Path, *, places: bool, **options: Any) -> dict[int, tuple[str | None, str]]:
    """Return the fields of the lines that are not refused."""
    files = Files(**{"path": str(folder), "format": "csv", "schema": SCHEMA, **options})
    rows = files.fetch(spark, [plan_batch(spark, files)], places=places).frame().where(f"{REFUSED} is null").collect()
    return {row["id"]: (row["text"], row["last"]) for row in rows}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_field_is_exact_or_refused(spark: SparkSession, tmp_path: Path, options: dict[str, Any]) -> None:
    """The field, and the line behind it, are as Spark's own reader gives them. Only one of the lines has two faults."""
    fields = [
        each for each in FIELDS if not {options.get("sep", ","), options.get("lineSep", "\n")} & {*each.strip('"')}
    ]
    folder = write_fields(tmp_path / "measure", fields, options)
    reader = spark.read.schema(SCHEMA).options(header=True, escape='"', **options)
    measure = {row["id"]: (row["text"], row["last"]) for row in reader.csv(str(folder)).collect()}
    assert len(measure) == len(fields)
    wrong = options.get("sep", ",").join(["wrong", "x", "y"])
    for places, more in ((False, {}), (True, {}), (True, {"on_change": {"other": "rescue"}})):
        into = write_fields(tmp_path / f"{places}{len(more)}", fields, options, wrong)
        rows = read(spark, into, places=places, options=options, **more)
        assert {at: row for at, row in rows.items() if at is not None and row != measure[at]} == {}
        assert len(fields) - len(rows.keys() - {None}) <= 1


def test_a_message_is_exact(spark: SparkSession) -> None:
    """Kafka's CSV is parsed message by message."""
    texts = [text for text in FIELDS if '"' not in text]
    frame = spark.createDataFrame([(f"{at},{text},<{at}>",) for at, text in enumerate(texts)], f"{LINE} string")
    rows = parse_fields(frame, ["id", "text", "last"], {"escape": '"'}).collect()
    assert {row["id"]: (row["text"], row["last"]) for row in rows} == {
        str(at): (text, f"<{at}>") for at, text in enumerate(texts)
    }


def test_random_fields_are_exact(spark: SparkSession, tmp_path: Path) -> None:
    """They have any of the rare characters, in both ways."""
    chance = random.Random(25)
    fields = ["-" + "".join(chance.choices(RARE, k=chance.randrange(8))) + "-" for _ in range(2_000)]
    fields += ["".join(chance.choices(RARE[2:5], k=chance.randrange(1, 4))) for _ in range(200)]
    folder = write_fields(tmp_path / "in", fields, {}, "wrong,x,y")
    for places in (False, True):
        rows = read(spark, folder, places=places)
        assert [(text, rows.get(at)) for at, text in enumerate(fields) if rows.get(at) != (text, f"<{at}>")] == []


def test_a_decimal_is_exact_or_refused(spark: SparkSession, tmp_path: Path) -> None:
    """No cast fails, or takes long. Each number that fits is read, except with a huge exponent."""
    lines = "\n".join(f"{at},{number}" for at, number in enumerate(NUMBERS))
    (tmp_path / "a.csv").write_text(f"id,number\n{lines}\nwrong,1\n")
    for size in DECIMALS.values():
        fitting = {each for each in NUMBERS if not re.search("[eE][+-]?[0-9]{6}", each) and fits(Decimal(each), *size)}
        files = Files(path=str(tmp_path), format="csv", schema=f"id int, number decimal{size}")
        for places in (False, True):
            frame = files.fetch(spark, [plan_batch(spark, files)], places=places).frame()
            rows = frame.where(f"{REFUSED} is null").collect()
            assert [row for row in rows if row["number"] != Decimal(NUMBERS[row["id"]])] == []
            assert {NUMBERS[row["id"]] for row in rows} == fitting
