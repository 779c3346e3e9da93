"""A table gets a new requirement after a batch is decided and before it is delivered."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runners.model.events import BatchDecided, Event
from runners.model.run_report import Report
from runners.running.compatibility import OperatorOverrides
from tests.scenarios.conftest import ORDERS, Place, make_order

pytestmark = pytest.mark.spark

TWO = ORDERS.replace("dlq:", "  - delta: {path: tables/copy}\ndlq:")
ROWS = [make_order(1), make_order(2, amount="x"), make_order(3), make_order(4, email="anna.longer@x.com")]
"""Four orders. The second one is refused in any case."""
PYTHON = ORDERS.replace("  - cast:", "  - python: 'passed:passed'\n  - cast:")
NOT_THREE = "alter table {table} add constraint not_three check (id <> 3)"


def change_demands(place: Place, what: str, table: str = "orders") -> None:
    """Change the requirements of a table with a statement."""
    place.spark.sql(what.format(table=f"delta.`{place.folder}/tables/{table}`"))


def replace_columns(place: Place, schema: str, table: str = "orders") -> None:
    """Replace the columns of a table and remove its rows, but keep its identity."""
    empty = place.spark.createDataFrame([], schema).write.format("delta").mode("overwrite")
    empty.option("overwriteSchema", "true").save(str(place.folder / "tables" / table))


def interrupt_run(place: Place, text: str) -> Report:
    """Run until the first batch is decided, and fail before any of its rows is delivered."""

    def listen(event: Event) -> None:
        if isinstance(event, BatchDecided):
            raise RuntimeError("the lights go out")

    return place.load(text).run(listeners=[listen], check=False)


def act_meanwhile(place: Place, what: str, table: str = "orders") -> Callable[[Event], None]:
    """Return a listener that runs this statement once the first batch is decided."""
    left = [what]

    def listen(event: Event) -> None:
        if isinstance(event, BatchDecided) and left:
            change_demands(place, left.pop(), table)

    return listen


def list_refused(place: Place) -> list[tuple[int, str, str | None]]:
    """Return the positions, codes and destinations of the rows in the DLQ."""
    return [(row["position"], row["code"], row["destination"]) for row in place.refused()]


@pytest.mark.connect
@pytest.mark.promise("CD-16", "CD-22")
def test_an_undelivered_batch_is_decided_again_for_a_new_constraint(place: Place) -> None:
    """The next run puts the row into the DLQ and delivers the others once. The audit finds no problem."""
    place.land("1.json", ROWS)
    assert interrupt_run(place, TWO).status == "failed"
    change_demands(place, NOT_THREE, "copy")
    report = place.load().run()
    assert (report.read, report.nacked, report.balanced) == (4, 2, True)
    assert list_refused(place) == [(2, "CAST", None), (3, "CHECK", "copy")]
    assert (place.ids("tables/orders"), place.ids("tables/copy")) == ([1, 4], [1, 4])
    assert place.load().audit().balanced is True


@pytest.mark.promise("CD-16")
def test_rows_that_a_replaced_table_does_not_accept_are_refused(place: Place) -> None:
    """One value must not be NULL there, and one is too long. The user must first confirm that the table is right."""
    text = ORDERS.replace('  - filter: "email is not null"\n', "")
    place.land(
        "1.json",
        [make_order(1), make_order(2, email=None), make_order(3, amount="x"), make_order(4, email="longer@x.com")],
    )
    assert interrupt_run(place, text).status == "failed"
    change_demands(
        place, "replace table {table} (id bigint, email varchar(8) not null, amount decimal(10,2)) using delta"
    )
    report = place.load().run(check=False)
    assert report.error is not None
    assert report.error.code == "UNSURE"
    report = place.load().run(ruling=OperatorOverrides(assume="missing", fresh=("orders",), reason="it was made anew"))
    assert (report.nacked, report.balanced, place.ids("tables/orders")) == (3, True, [1])
    assert list_refused(place) == [(2, "NOT_NULL", "orders"), (3, "CAST", None), (4, "LENGTH", "orders")]


@pytest.mark.promise("CD-16")
def test_a_decided_batch_is_given_up_if_its_table_has_another_type(place: Place) -> None:
    """The next run delivers none of its rows. A definition that fits the table then delivers the same rows."""
    place.land("1.json", [make_order(1), make_order(2, amount="x"), make_order(300)])
    assert interrupt_run(place, ORDERS).status == "failed"
    replace_columns(place, "id bigint, email string, amount decimal(4,2)")
    report = place.load().run(check=False)
    assert report.error is not None
    assert (report.error.code, place.ids("tables/orders"), place.load().status()["open"]) == ("MISFIT", [], [])
    report = place.load(ORDERS.replace("decimal(10,2)", "decimal(4,2)")).run()
    assert (report.nacked, report.balanced, place.ids("tables/orders")) == (2, True, [1])


@pytest.mark.promise("CD-16")
def test_a_constraint_added_during_a_run_applies_to_a_decided_batch(place: Place) -> None:
    """The DLQ already has one row of the batch, which is refused again. It gets only the other row."""
    place.land("1.json", ROWS)
    report = place.load(ORDERS).run(listeners=[act_meanwhile(place, NOT_THREE)])
    assert (report.read, report.nacked, report.balanced) == (4, 2, True)
    assert list_refused(place) == [(2, "CAST", None), (3, "CHECK", "orders")]
    assert place.ids("tables/orders") == [1, 4]
    assert place.load().audit().balanced is True


def test_a_batch_with_a_python_stage_is_not_decided_again_once_the_dlq_has_its_rows(place: Place) -> None:
    """The function might now keep a row that it refused before. The run stops, and the error names the constraint."""
    (place.folder / "passed.py").write_text("def passed(rows: list[dict]) -> list:\n    return rows\n")
    place.land("1.json", ROWS)
    report = place.load(PYTHON).run(listeners=[act_meanwhile(place, NOT_THREE)], check=False)
    assert report.error is not None
    assert report.error.code == "REFUSED_LATE"
    assert "not_three" in report.error.message
    change_demands(place, "alter table {table} drop constraint not_three")
    assert place.load().run().balanced is True
    assert (place.ids("tables/orders"), list_refused(place)) == ([1, 3, 4], [(2, "CAST", None)])


@pytest.mark.promise("CD-12")
def test_a_new_constraint_stops_the_run_if_another_destination_has_the_batch(place: Place) -> None:
    """Once the constraint is dropped, the batch is finished, and both tables have each row once."""
    place.land("1.json", ROWS)
    report = place.load(TWO).run(listeners=[act_meanwhile(place, NOT_THREE, "copy")], check=False)
    assert report.error is not None
    assert (report.error.code, place.ids("tables/orders")) == ("REFUSED_LATE", [1, 3, 4])
    again = place.load().run(check=False)
    assert again.error is not None
    assert "'copy' refuses rows of batch 1 of lane 0, but orders has rows of it already" in again.error.message
    change_demands(place, "alter table {table} drop constraint not_three", "copy")
    assert place.load().run().balanced is True
    assert (place.ids("tables/orders"), place.ids("tables/copy")) == ([1, 3, 4], [1, 3, 4])
    assert list_refused(place) == [(2, "CAST", None)]
