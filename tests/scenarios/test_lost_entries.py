"""A ledger in a store has lost a file, as an earlier version of Wherry left it after a refused request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from origins.object_store import open_store
from origins.store_access import StoreUrl
from runners.command_line.cli import execute
from runners.model.errors import Paused
from tests.scenarios.test_store_state import load_pipeline, run_and_move, write_file
from tests.stores.s3 import S3

pytestmark = pytest.mark.usefixtures("no_spark")


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[bool, str]:
    """Run a command. Return whether it succeeded, and what it printed."""
    code, printed = execute(words), capsys.readouterr()
    return code == 0, printed.out + printed.err


def read_ids(folder: Path) -> list[int]:
    return sorted(DeltaTable(str(folder / "tables/orders")).to_pyarrow_table()["id"].to_pylist())


def lose_file(s3: S3, number: int) -> str:
    """Remove the file of the ledger with the plan of a batch. Return its name."""
    url = StoreUrl(s3.make_url("wherry/orders/ledger"), s3.spark_settings)
    found = DeltaTable(str(url), storage_options=s3.storage_options).to_pyarrow_table().to_pylist()
    bodies = {row["seq"]: json.loads(row["body"]) for row in found if row["kind"] == "plan"}
    (planned,) = (seq for seq, body in bodies.items() if body["number"] == number)
    files = DeltaTable(str(url), storage_options=s3.storage_options).get_add_actions(flatten=True)
    columns = zip(*(files.column(name).to_pylist() for name in ("path", "min.seq", "max.seq")), strict=True)
    name = next(str(path) for path, first, last in columns if first <= planned <= last)
    open_store(url).delete([name])
    return name


def test_a_person_repairs_it_with_the_commands_that_are_printed(
    tmp_path: Path, s3: S3, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every row is there once at the end, although the ledger forgot a batch that was delivered."""
    write_file(tmp_path, 1)
    run_and_move(tmp_path, s3)
    write_file(tmp_path, 2, 3, 4)
    pipeline, file = load_pipeline(tmp_path, s3), str(tmp_path / "pipeline.yaml")
    pipeline.run()
    name = lose_file(s3, 3)
    for command in ("status", "audit", "run"):
        succeeded, printed = call(capsys, command, file)
        assert (succeeded, f"the file {name} of version" in printed) == (False, True)
        assert f"wherry repair {file} --reason" in printed
    printed = call(capsys, "repair", file, "--reason", "a file was lost", "--yes")[1]
    assert "batch 3 of lane 0 is not restored: orders has 1 row" in printed
    with pytest.raises(Paused, match="Delete these rows first"):
        load_pipeline(tmp_path, s3).run()
    succeeded, printed = call(capsys, "status", file)
    assert (succeeded, "what it was read from is lost" in printed) == (True, True)
    DeltaTable(str(tmp_path / "tables/orders")).delete("id = 3")
    assert call(capsys, "resume", file, "--reason", "deleted")[0]
    assert load_pipeline(tmp_path, s3).run().read == 1
    assert read_ids(tmp_path) == [1, 2, 3, 4]
    assert [(each.code, each.number) for each in load_pipeline(tmp_path, s3).audit().problems] == [("NOT_PROVED", 2)]
