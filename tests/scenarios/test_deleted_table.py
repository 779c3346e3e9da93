"""The command that an audit prints puts a deleted table right."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator

import pytest

from runners.command_line import cli
from runners.running.backfill import Backfill
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = [pytest.mark.spark]


def find_command(text: str) -> list[str]:
    """Return the words of the backfill that a text advises."""
    (command,) = re.findall(r"wherry (backfill .*)", text)
    return shlex.split(command)


def test_one_command_puts_a_replaced_table_right(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The audit, the repair and the refused run advise it. It fills the other table that came into its place."""
    monkeypatch.chdir(place.folder)
    place.land("a.json", [make_order(1), make_order(2, amount="x")])
    place.land("b.json", [make_order(3)])
    place.load(ORDERS).run()
    shutil.rmtree(place.folder / "tables/orders")
    place.spark.sql(
        f"create table delta.`{place.folder}/tables/orders` (id long, email string, amount decimal(10,2)) using delta"
    )
    assert cli.execute(["audit", "pipeline.yaml"]) == 1
    audited = find_command(capsys.readouterr().out)
    assert cli.execute(["repair", "pipeline.yaml", "--reason", "it is gone", "--yes"]) == 1
    assert find_command(capsys.readouterr().out) == audited
    assert cli.execute(["run", "pipeline.yaml"]) == 1
    refused = capsys.readouterr()
    assert find_command(refused.err) == audited
    assert "wherry run pipeline.yaml --fresh orders --reason" in refused.err
    assert cli.execute([*audited, "--yes"]) == 0
    assert "gets 2 batches, 3 rows; it got 2 batches, 3 rows" in capsys.readouterr().err
    assert place.ids("tables/orders") == [1, 3]
    assert cli.execute(["audit", "pipeline.yaml"]) == 0
    place.land("c.json", [make_order(4)])
    assert cli.execute(["run", "pipeline.yaml"]) == 0
    assert place.ids("tables/orders") == [1, 3, 4]


MERGE = "delta: {path: tables/orders, mode: merge, keys: [id]}"
BESIDE = f"delta: {{path: tables/first}}\n  - {MERGE}"


def test_one_command_puts_one_of_two_deleted_tables_right(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table that is merged into gets all its batches again. The other table gets none."""
    monkeypatch.chdir(place.folder)
    place.land("a.json", [make_order(1), make_order(2, amount="x")])
    place.land("b.json", [make_order(3)])
    place.load(ORDERS.replace("delta: {path: tables/orders}", BESIDE)).run()
    shutil.rmtree(place.folder / "tables/orders")
    assert cli.execute(["audit", "pipeline.yaml"]) == 1
    command = find_command(capsys.readouterr().out)
    assert cli.execute([*command, "--yes"]) == 0
    assert place.ids("tables/orders") == [1, 3]
    assert place.ids("tables/first") == [1, 3]
    assert cli.execute(["audit", "pipeline.yaml"]) == 0


@pytest.fixture
def schema(place: Place) -> Iterator[str]:
    """Provide a schema of the catalog for one test."""
    place.spark.sql("create schema deleted_tables")
    yield "deleted_tables"
    place.spark.sql("drop schema deleted_tables cascade")


def test_one_command_puts_a_dropped_table_right(
    place: Place, schema: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table by name gets all its batches again."""
    monkeypatch.chdir(place.folder)
    place.land("a.json", [make_order(1), make_order(2, amount="x")])
    place.land("b.json", [make_order(3)])
    place.load(ORDERS.replace("path: tables/orders", f"table: {schema}.orders")).run()
    place.spark.sql(f"drop table {schema}.orders")
    assert cli.execute(["audit", "pipeline.yaml"]) == 1
    command = find_command(capsys.readouterr().out)
    assert cli.execute([*command, "--yes"]) == 0
    assert [row.id for row in place.spark.table(f"{schema}.orders").sort("id").collect()] == [1, 3]
    assert cli.execute(["audit", "pipeline.yaml"]) == 0


def test_a_backfill_of_some_batches_makes_no_new_table(place: Place) -> None:
    """The table would lack the other batches. The error names the command that delivers all."""
    place.land("a.json", [make_order(1)])
    place.land("b.json", [make_order(2)])
    place.load(ORDERS).run()
    shutil.rmtree(place.folder / "tables/orders")
    report = place.load().backfill(Backfill(start=2, only="orders", again=True, reason="a test"), check=False)
    assert report.error is not None
    assert "wherry backfill FILE --only orders --again" in report.error.hint
    assert not (place.folder / "tables/orders").exists()
