"""`init --from` proposes a definition for a user's files."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from origins.errors import WherryError
from origins.files import Files
from runners.command_line import cli
from runners.definitions.definition import load
from runners.definitions.first_pipeline import begin
from runners.definitions.proposal import propose
from runners.model.spec import PipelineSpec
from stages.cast import Cast
from stages.columns import WithColumns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def load_proposed(files: Path, directory: Path) -> PipelineSpec:
    """Return the proposed pipeline for these files."""
    (file,) = begin(directory, "sales", own=propose(files))
    return load(file).pipeline


def get_origin(pipeline: PipelineSpec) -> Files:
    """Return the pipeline's origin."""
    assert isinstance(pipeline.origin, Files)
    return pipeline.origin


def list_casts(pipeline: PipelineSpec) -> dict[str, str]:
    """Return the types that the pipeline casts columns to."""
    return {name: kind for stage in pipeline.stages if isinstance(stage, Cast) for name, kind in stage.columns.items()}


def test_columns_get_the_type_of_most_of_their_values(tmp_path: Path) -> None:
    """The cast refuses the other values. Text stays text, and so do digits that begin with 0."""
    good = [f"{n},{n}.50,1e{n},2026-01-{n:02},2026-01-01T00:00:{n:02}Z,x{n},{n},\n" for n in range(1, 20)]
    lines = ["id,amount,share,day,at,name,zip,empty\n", *good, "x,sieben,,,,y,01234,\n"]
    (tmp_path / "sales.csv").write_text("".join(lines))
    pipeline = load_proposed(tmp_path / "sales.csv", tmp_path / "made")
    assert list_casts(pipeline) == {
        "id": "bigint",
        "amount": "decimal(18,2)",
        "share": "double",
        "day": "date",
        "at": "timestamp",
    }
    assert (get_origin(pipeline).format, dict(get_origin(pipeline).options)) == ("csv", {})
    assert Path(get_origin(pipeline).path).resolve() == tmp_path / "sales.csv"


@pytest.mark.parametrize(
    ("good", "bad", "kind"), [(6, 2, "bigint"), (3, 1, "bigint"), (5, 2, ""), (18, 3, ""), (27, 3, "bigint")]
)
def test_two_of_few_values_may_be_bad(tmp_path: Path, good: int, bad: int, kind: str) -> None:
    """They must be at most a quarter of the values. Of many values, a tenth may be bad."""
    lines = [*map(str, range(1, good + 1)), *["sieben"] * bad]
    (tmp_path / "sales.csv").write_text("amount\n" + "".join(f"{line}\n" for line in lines))
    assert list_casts(load_proposed(tmp_path / "sales.csv", tmp_path / "made")).get("amount", "") == kind


def test_a_folder_is_read_with_any_separator(tmp_path: Path) -> None:
    """Names may have characters with a meaning in YAML and in parameters."""
    folder = tmp_path / "in ${HERE}: a #1"
    folder.mkdir()
    with gzip.open(folder / "b.csv.gz", "wt") as file:
        file.write('"id";"a ""b"": c"\n1;2\n')
    (folder / "_ignored.json").write_text("{}")
    pipeline = load_proposed(folder, tmp_path / "made")
    assert dict(get_origin(pipeline).options) == {"sep": ";"}
    assert list_casts(pipeline) == {"id": "bigint", 'a "b": c': "bigint"}
    assert Path(get_origin(pipeline).path).resolve() == folder / "*.csv.gz"


def test_european_numbers_and_days_are_converted_for_the_cast(tmp_path: Path) -> None:
    """A stage before the cast converts them. A column of numbers with a point needs no such stage."""
    lines = [f"{n},10;1.23{n},50;0{n}.01.2026;{n}.5\n" for n in range(1, 10)]
    (tmp_path / "sales.csv").write_text("".join(["a b;sum;day;share\n", *lines]))
    pipeline = load_proposed(tmp_path / "sales.csv", tmp_path / "made")
    assert list_casts(pipeline) == {
        "a b": "decimal(18,2)",
        "sum": "decimal(18,2)",
        "day": "date",
        "share": "decimal(18,2)",
    }
    (put,) = [stage for stage in pipeline.stages if isinstance(stage, WithColumns)]
    assert [*put.columns] == ["a b", "sum", "day"]


NOTATIONS = {
    "sum": {
        "1.234.567,80": "1234567.80",
        "1.250": "1250",
        "12.50": "12.50",
        "-3,5": "-3.5",
        "1,234.56": "1.234.56",
        "sieben": "sieben",
    },
    "day": {"31.12.2026": "2026-12-31", "2026-12-31": "2026-12-31", "31.12.26": "31.12.26"},
}
"""The texts that are read, and what the cast then gets, by column."""


@pytest.mark.spark
def test_other_notations_are_left_for_the_cast(tmp_path: Path, spark: SparkSession) -> None:
    """No value becomes another number."""
    lines = [f"1.23{n},50;0{n}.01.2026\n" for n in range(1, 10)]
    (tmp_path / "sales.csv").write_text("".join(["sum;day\n", *lines]))
    pipeline = load_proposed(tmp_path / "sales.csv", tmp_path / "made")
    (stage,) = [stage for stage in pipeline.stages if isinstance(stage, WithColumns)]
    for column, texts in NOTATIONS.items():
        frame = spark.createDataFrame([(text, text) for text in texts], f"text string, `{column}` string")
        rows = frame.selectExpr("text", f"{stage.columns[column]} as put").collect()
        assert {row["text"]: row["put"] for row in rows} == texts


@pytest.mark.parametrize("name", ["a.xlsx", "no_suffix"])
def test_a_file_of_another_format_is_refused(tmp_path: Path, name: str) -> None:
    """The message lists the formats, and nothing is written."""
    (tmp_path / name).write_text("x")
    with pytest.raises(WherryError, match=r"ends with one of \.csv, \.tsv, \.json"):
        propose(tmp_path / name)
    assert not (tmp_path / "made").exists()


def test_a_named_pipe_is_not_read(tmp_path: Path) -> None:
    """Alone it is refused. In a folder, the files beside it are read."""
    (tmp_path / "in").mkdir()
    os.mkfifo(tmp_path / "in" / "a.csv")
    for own in (tmp_path / "in" / "a.csv", tmp_path / "in"):
        with pytest.raises(WherryError, match=r"ends with one of \.csv, \.tsv, \.json"):
            propose(own)
    (tmp_path / "in" / "b.csv").write_text("n\n1\n")
    assert list_casts(load_proposed(tmp_path / "in", tmp_path)) == {"n": "bigint"}


def test_the_init_command_shows_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There are no cases, so `wherry test` is not named. Local files are refused for Databricks."""
    monkeypatch.chdir(tmp_path)
    Path("sales.csv").write_text("id\n1\n")
    assert cli.execute(["init", "shop", "--from", "sales.csv"]) == 0
    out = capsys.readouterr().out
    assert "wherry preview shop/shop.yaml" in out
    assert "wherry test" not in out
    assert cli.execute(["init", "other", "--from", "sales.csv", "--databricks"]) == 2
