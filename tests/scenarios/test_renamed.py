"""A pipeline under a new name does not deliver the rows again that the older name delivered."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

from destinations.conformance import make_label
from destinations.delta import Delta
from destinations.destination import Destination
from origins.batch_rows import FrameRows
from origins.delta import Delta as DeltaOrigin
from origins.files import Files
from runners.definitions.definition import load
from runners.operations.validate import explain
from runners.running.renamed import digest_place
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = [pytest.mark.spark]

RENAMED = ORDERS.replace("name: orders", "name: sales", 1)


@pytest.mark.promise("CN-04")
def test_a_renamed_pipeline_asks_before_it_reads_a_row(place: Place) -> None:
    """The question names both pipelines, what they share, and what to type in each case."""
    place.land("a.json", [make_order(1)])
    place.load(ORDERS).run()
    place.define(RENAMED)
    (note,) = [each for each in explain(load(place.folder / "pipeline.yaml")).notes if "renamed" in each]
    assert note.endswith("The first run asks whether orders was renamed.")
    for _ in range(2):
        error = place.load().run(check=False).error
        assert error is not None
        assert error.message.startswith("Was orders renamed to sales, or is this a second pipeline? ")
        assert f"reads {place.folder}/landing/*.json and writes to 'orders' too" in error.message
        assert "name: orders" in error.hint
        assert "wherry run FILE --fresh orders --reason" in error.hint
    assert place.ids("tables/orders") == [1]
    place.land("b.json", [make_order(2)])
    place.load(ORDERS).run()
    assert place.ids("tables/orders") == [1, 2]


def test_pipelines_that_share_only_one_end_are_not_asked(place: Place) -> None:
    """Two origins may go to one table, and one origin to two tables."""
    place.land("a.json", [make_order(1)])
    place.land("b.json", [make_order(2)], folder="returns")
    place.load(ORDERS).run()
    place.load(RENAMED.replace("landing/", "returns/", 1)).run()
    place.load(RENAMED.replace("name: sales", "name: copies").replace("tables/orders", "tables/copies")).run()


def test_a_renamed_pipeline_into_python_asks_in_a_catalog(place: Place) -> None:
    """A Python destination knows no pipeline, so the run looks at the ledgers of the schema."""
    place.spark.sql("create schema if not exists renamed_python")
    place.spark.sql("create table renamed_python.other_ledger (id bigint) using delta")
    place.land("a.json", [make_order(1)])
    text = ORDERS.replace("delta: {path: tables/orders}", 'python: "builtins:print"\n    name: orders')
    text += "state: {schema: renamed_python}\n"
    place.load(text).run()
    error = place.load(text.replace("name: orders", "name: sales", 1)).run(check=False).error
    assert error is not None
    assert error.message.startswith("Was orders renamed to sales, or is this a second pipeline? ")
    assert "(renamed_python.orders_ledger)" in error.message


TO_FILES = "delta: {path: tables/orders}", "files: {path: tables/orders, format: json}\n    name: orders"


def move(place: Place, text: str) -> tuple[Place, str]:
    """Return a new folder, and the definition there with the paths of the old folder."""
    folder = place.folder / "elsewhere"
    folder.mkdir()
    moved = text.replace("landing/", f"{place.folder}/landing/").replace("tables/", f"{place.folder}/tables/")
    return Place(folder, place.spark), moved


@pytest.mark.parametrize("change", [("", ""), TO_FILES], ids=["delta", "files"])
def test_a_pipeline_that_is_moved_and_renamed_asks_before_it_reads_a_row(place: Place, change: tuple[str, str]) -> None:
    """No state is beside the new one. The batches in the destination name their pipeline and what it read."""
    place.land("a.json", [make_order(1)])
    place.load(ORDERS.replace(*change)).run()
    place.land("b.json", [make_order(2)])
    new, text = move(place, RENAMED.replace(*change))
    error = new.load(text).run(check=False).error
    assert error is not None
    assert error.message.startswith("Was orders renamed to sales, or is this a second pipeline? ")
    assert error.message.endswith(f"reads {place.folder}/landing/*.json and writes to 'orders' too.")
    assert "put the old name and the old `state:` back" in error.hint
    back = text.replace("name: sales", "name: orders", 1) + f"state: {place.folder}/.wherry/orders\n"
    report = new.load(back).run()
    assert report.read == 1


def test_batches_that_do_not_say_where_they_were_read_raise_no_question(place: Place) -> None:
    """Older versions of Wherry wrote such batches."""
    place.land("a.json", [make_order(1)])
    rows = place.spark.sql("select 1L id, 'a' email, cast(1 as decimal(10,2)) amount")
    write(place, Delta(path=str(place.folder / "tables/orders")), rows)
    assert place.load(ORDERS).run().read == 1


def write(place: Place, destination: Destination, rows: DataFrame) -> None:
    """Write the rows as a batch of a pipeline that does not say what it read."""
    opened = destination.open()
    opened.ensure_place(place.spark, rows.schema)
    opened.write(place.spark, FrameRows(rows), [make_label()])


def test_a_place_has_one_digest_however_it_is_spelled() -> None:
    """The digest depends on the kind and the place of the origin, and on nothing else of it."""
    digests = {digest_place(Files(path=f"{scheme}://lake/in", format="json")) for scheme in ("s3", "s3a")}
    assert len(digests) == 1
    assert digest_place(Files(path="s3://lake/in", format="csv", name="other", lanes=3)) in digests
    assert digest_place(Files(path="s3://lake/out", format="json")) not in digests
    assert digest_place(DeltaOrigin(path="s3://lake/in")) not in digests
