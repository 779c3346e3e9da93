"""Which paths of this machine a definition names; without Spark."""

from __future__ import annotations

from pathlib import Path

from destinations.delta.delta import Delta
from destinations.dlq import Dlq
from origins.files.files import Files
from runners.model.spec import PipelineSpec, SchemaState
from runners.running.shared_folders import list_places
from stages.lookup import Lookup


def test_all_paths_of_this_machine_are_named(tmp_path: Path) -> None:
    """What is read is looked for in a file that is there, and what is written in the nearest folder that is."""
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "0.json").touch()
    (tmp_path / "landing" / "1.json").write_text("{}\n")
    places = list_places(
        PipelineSpec(
            name="orders",
            origin=Files(path=f"{tmp_path}/landing/*.json", format="json"),
            stages=[Lookup(path=f"{tmp_path}/missing", on=["id"], columns=["a"])],
            destinations=[Delta(path=f"file:{tmp_path}/tables/orders", name="orders")],
            dlq=Dlq(destination=Delta(path=f"{tmp_path}/dlq", name="dlq")),
            state=f"{tmp_path}/state",
        )
    )
    assert {(each.path, each.probe, each.written) for each in places} == {
        (f"{tmp_path}/state", tmp_path, True),
        (f"file:{tmp_path}/tables/orders", tmp_path, True),
        (f"{tmp_path}/dlq", tmp_path, True),
        (f"{tmp_path}/landing/*.json", tmp_path / "landing" / "1.json", False),
        (f"{tmp_path}/missing", None, False),
    }


def test_what_is_in_a_store_or_a_catalog_is_not(tmp_path: Path) -> None:
    """All machines find it."""
    pipeline = PipelineSpec(
        name="orders",
        origin=Files(path="s3a://bucket/landing", format="json"),
        destinations=[Delta(path="s3a://bucket/orders"), Delta(table="main.orders")],
        state=SchemaState(schema="main.wherry"),
    )
    assert list(list_places(pipeline)) == []
