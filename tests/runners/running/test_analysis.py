"""What `validate --spark` finds before any row is read: types, and errors in SQL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from origins.errors import OriginError
from runners.command_line import cli
from runners.definitions.definition import load
from runners.model.errors import SplitAggregate, StageError
from runners.operations.validate import analyse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.connect]


def analyse_files(
    folder: Path, stages: str, *, schema: str = 'schema: "id long, amount string", '
) -> Mapping[str, str]:
    """Return the columns that reach each of two destinations from files with these stages."""
    file = folder / "orders.yaml"
    file.write_text(
        f'name: orders\norigin: {{files: {{path: "landing/*.json", {schema}format: json}}}}\n'
        f"stages: [{stages}]\n"
        "destinations: [{delta: {path: tables/orders}}, {log: {}, stages: [{select: [id]}]}]\n"
    )
    return analyse(load(file)).columns


def test_the_columns_of_each_destination_are_found(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing is read or written, so broken files do not matter."""
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "broken.json").write_text("}{")
    assert analyse_files(tmp_path, '{cast: {amount: "decimal(10,2)"}}, {with_columns: {day: "current_date()"}}') == {
        "orders": "id BIGINT,amount DECIMAL(10,2),day DATE",
        "log": "id BIGINT",
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["landing", "orders.yaml"]


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ('{filter: "amout > 0"}', r"stage 'filter': .*amout.*cannot be resolved.*amount"),
        ('{filter: "id > 0"}, {filter: "amount"}', r"stage 'filter#2': "),
    ],
)
def test_a_stage_with_an_error_is_named(spark: SparkSession, tmp_path: Path, stages: str, said: str) -> None:
    """The message is one line with Spark's error."""
    (tmp_path / "landing").mkdir()
    with pytest.raises(StageError, match=said) as caught:
        analyse_files(tmp_path, stages)
    assert "\n" not in caught.value.message


COUNTS = "{sql: \"select id, count(*) as n, 'limit' as said from rows group by id\"}"


def test_a_stage_that_sees_one_batch_at_a_time_is_noted(spark: SparkSession, tmp_path: Path) -> None:
    """Before a replaced destination it is refused, unless the origin gives whole batches. Text in a statement does not
    matter.
    """
    (tmp_path / "landing").mkdir()
    analyse_files(tmp_path, f"{COUNTS}, {{sql: \"select *, 'group by' as `distinct` from rows\"}}")
    file = tmp_path / "orders.yaml"
    (note,) = analyse(load(file)).notes
    assert note.startswith("files: stage 'sql' has an aggregate and sees one batch at a time, but 'files' may give")
    file.write_text(file.read_text().replace("path: tables/orders", "path: tables/orders, mode: replace"))
    with pytest.raises(SplitAggregate, match="'orders' would get a wrong result"):
        analyse(load(file))
    assert [cli.execute(["validate", str(file), *more]) for more in ([], ["--spark"])] == [0, 2]
    file.write_text(file.read_text().replace("format: json}", "format: json}, batch: whole"))
    assert analyse(load(file)).notes == ()


def test_unknown_columns_are_not_guessed(spark: SparkSession, tmp_path: Path) -> None:
    """An empty folder without a schema has no known columns."""
    (tmp_path / "landing").mkdir()
    assert analyse_files(tmp_path, "", schema="") == {}


def test_a_missing_place_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    """The error names the folder."""
    with pytest.raises(OriginError, match="landing"):
        analyse_files(tmp_path, "")
