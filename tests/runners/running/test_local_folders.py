"""Which local paths a definition names. Without Spark."""

from __future__ import annotations

from pathlib import Path

from destinations.delta.delta import Delta
from destinations.dlq import Dlq
from origins.files.files import Files
from runners.model.spec import PipelineSpec, SchemaState
from runners.running.local_folders import list_places
from stages.lookup import Lookup


def test_all_local_paths_are_listed(tmp_path: Path) -> None:
    """A path that is read is probed with an existing file. A path that is written is probed with the nearest existing
    folder.
    """
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


def test_no_probe_is_a_file_that_spark_ignores(tmp_path: Path) -> None:
    """Hadoop writes hidden files beside other files, and tables have hidden folders."""
    for name in (".part-0.parquet.crc", "_delta_log/0.json", "_SUCCESS", "day=1/.part-0.parquet.crc", "day=1/part-0"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    origin = Files(path=str(tmp_path), format="parquet")
    pipeline = PipelineSpec(name="orders", origin=origin, destinations=[], state=SchemaState(schema="main.wherry"))
    assert [each.probe for each in list_places(pipeline)] == [tmp_path / "day=1" / "part-0"]


def test_places_in_a_store_or_a_catalog_are_not_listed(tmp_path: Path) -> None:
    """All machines can reach them."""
    pipeline = PipelineSpec(
        name="orders",
        origin=Files(path="s3a://bucket/landing", format="json"),
        destinations=[Delta(path="s3a://bucket/orders"), Delta(table="main.orders")],
        state=SchemaState(schema="main.wherry"),
    )
    assert list(list_places(pipeline)) == []
