"""If a stage raises at a row, in Python or in SQL, or a table rejects it, only that row is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from destinations.delta import Delta
from destinations.dlq import Dlq
from origins.generate import Generate
from runners.model.events import BatchSettled
from runners.model.run_report import PipelineFailed, Report
from runners.model.spec import RetryOptions, RunOptions
from runners.pipeline import Pipeline
from stages.columns import Select, WithColumns
from stages.conditions import Filter, Require
from stages.python import Handler
from stages.python_call import keep, nack
from stages.sql import Sql
from stages.stage import Stage
from tests.scenarios.conftest import ORDERS, Place, carry_pipeline, make_order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ENRICH = """
from pathlib import Path
from typing import TypedDict
from stages.python_call import discard, keep, nack

class Scored(TypedDict):
    score: float

def score(rows: list[dict]) -> list[Scored]:
    with open(Path(__file__).parent / "calls", "a") as file:
        file.writelines(f"{row['id']}\\n" for row in rows)
    answers = {1: {"score": 0.5}, 2: keep, 3: discard, 4: nack("no good", code="MINE")}
    return [answers[row["id"]] if row["id"] in answers else {"score": 1 / (row["id"] - 5)} for row in rows]
"""
"""The code of a function. It writes the ids of its rows into a file beside it."""

PYTHON = ORDERS.replace(
    '  - with_columns: {email: "lower(email)"}\n',
    '  - python: "enrich:score"\n',
)


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Provide a list that counts, for each search, how often it computed rows to see whether they raise."""
    from runners.ways.bisect_rows import RowErrorIsolator

    made: list[Any] = []
    describe = RowErrorIsolator.describe

    def counted(self: Any, rows: Any) -> Any:
        described = describe(self, rows)
        made.append(self.tries)
        return described

    monkeypatch.setattr(RowErrorIsolator, "describe", counted)
    return made


@pytest.mark.connect
@pytest.mark.promise("HP-14", "HP-15", "CD-16")
def test_a_function_beside_the_definition_answers_for_every_row(place: Place) -> None:
    """Kept, changed, filtered and refused rows, and a row at which it raises, each end in one place. Its type hints
    name the new column."""
    (place.folder / "enrich.py").write_text(ENRICH)
    place.land("a.json", [make_order(number) for number in range(1, 7)])
    report = place.load(PYTHON).run()
    assert (report.read, report.filtered, report.nacked, report.delivered) == (6, 1, 2, {"orders": 3})
    assert report.balanced is True
    assert {row["id"]: row["score"] for row in place.rows("tables/orders")} == {1: 0.5, 2: None, 6: 1.0}
    assert [(row["code"], row["position"], row["stage"]) for row in place.refused()] == [
        ("MINE", 4, "python"),
        ("RAISED", 5, "python"),
    ]
    assert place.refused()[1]["message"] == "enrich:score raised ZeroDivisionError: division by zero"
    assert json.loads(place.refused()[1]["row"])["amount"] == 5.5


@pytest.mark.connect
@pytest.mark.promise("SS-22", "CD-16")
def test_a_stage_may_choose_its_rows_and_what_happens_to_those_it_refuses(place: Place) -> None:
    """One row takes each way, and the counts balance."""
    place.land(
        "a.json",
        [
            make_order(1),
            make_order(2, amount="x"),
            make_order(3, amount="-1"),
            make_order(4, amount="-1"),
            make_order(5, email=""),
        ],
    )
    text = """
stages:
  - cast: {amount: "decimal(10,2)"}
    on_error: keep
  - require: {positive: "amount > 0"}
    when: "amount is not null and id < 4"
    on_error: discard
  - require: {has_email: "email <> ''"}
"""
    head, _, tail = ORDERS.partition("stages:")
    pipeline = place.load(head + text.lstrip() + "destinations:" + tail.partition("destinations:")[2])
    (tried,) = pipeline.preview().batches
    assert [(each.counts.stage, each.counts.filtered, each.counts.nacked) for each in tried.stages] == [
        ("as read", 0, 0),
        ("cast", 0, 0),
        ("require", 1, 0),
        ("require#2", 0, 1),
    ]
    report = pipeline.run()
    assert (report.read, report.filtered, report.nacked, report.balanced) == (5, 1, 1, True)
    assert {row["id"]: row["amount"] and str(row["amount"]) for row in place.rows("tables/orders")} == {
        1: "1.50",
        2: None,
        4: "-1.00",
    }
    assert [row["code"] for row in place.refused()] == ["has_email"]


@pytest.mark.promise("SS-22")
def test_on_error_stop_stops_the_run(place: Place) -> None:
    """The window would let the row pass. The batch delivers nothing, and the DLQ is empty."""
    place.land("a.json", [make_order(1)])
    place.land("b.json", [make_order(2), make_order(3, amount="x")])
    report = place.load(ORDERS.replace('"decimal(10,2)"}\n', '"decimal(10,2)"}\n    on_error: stop\n')).run(check=False)
    assert report.error is not None
    assert (report.error.code, report.error.stage) == ("STAGE_STOP", "cast")
    assert "column amount: 'x' is not a decimal(10,2)" in report.error.message
    assert (place.ids("tables/orders"), place.refused()) == ([1], [])


@dataclass
class Numbers:
    """Numbers from 1 that pass stages into a table with a constraint."""

    folder: Path
    spark: SparkSession

    def carried(
        self, stages: list[Stage], *, rows: int = 100, check: str = "true", more: Sequence[Delta] = (), **limits: int
    ) -> Report:
        """Run the pipeline with all numbers in one batch."""
        path = str(self.folder / "out")
        self.spark.sql(f"create table delta.`{path}` (id bigint, x double) using delta")
        self.spark.sql(f"alter table delta.`{path}` add constraint lucky check ({check})")
        pipeline = Pipeline(
            name="numbers",
            origin=Generate(rows=rows),
            stages=[Select(["id"]), *stages],
            destinations=[Delta(path=path), *more],
            dlq=Dlq(window=0),
            state=str(self.folder / "state"),
            run=RunOptions(retry=RetryOptions(attempts=1, wait="1ms")),
        )
        report = carry_pipeline(pipeline, **limits)
        if report.status == "failed":
            raise PipelineFailed(report)
        return report

    def ids(self) -> list[int]:
        """Return the delivered ids."""
        return sorted(row.id for row in self.spark.read.format("delta").load(str(self.folder / "out")).collect())

    def refused(self) -> dict[int, tuple[str, str, str]]:
        """Return the stage, the code and the message of each row in the DLQ."""
        rows = self.spark.read.format("delta").load(str(self.folder / "state/dlq")).collect()
        assert len({row.id for row in rows}) == len(rows)
        return {json.loads(row["row"])["id"]: (row.stage, row.code, row.message) for row in rows}


@pytest.fixture
def numbers(tmp_path: Path, spark: SparkSession) -> Numbers:
    """Provide the numbers, with an empty folder."""
    return Numbers(tmp_path, spark)


@pytest.mark.long
@pytest.mark.promise("HP-15", "CD-16", "CD-22")
def test_only_the_bad_rows_of_a_hundred_thousand_are_refused(numbers: Numbers, tries: list[int]) -> None:
    """Three rows fail in a function, three in SQL and three at a table's constraint. The others are delivered once, and
    bisection finds the rows that raise in SQL."""

    def function(rows: pd.DataFrame) -> pd.DataFrame:
        if rows["id"].isin([10, 50_000, 50_001]).any():
            raise ValueError("unlucky")
        return rows

    in_sql, by_table = [33_333, 33_334, 33_335], [7, 77, 77_777]
    raising = f"case when id in ({', '.join(map(str, in_sql))}) then id / 0 else id / 2 end"
    stages = [Handler(function, rows=10_000), WithColumns({"x": raising})]
    lucky = f"id not in ({', '.join(map(str, by_table))})"
    report = numbers.carried(stages, rows=100_000, check=lucky)
    assert (report.nacked, report.delivered, report.balanced) == (9, {"out": 99_991}, True)
    refused = numbers.refused()
    assert {id_: why[:2] for id_, why in refused.items()} == {
        **dict.fromkeys([10, 50_000, 50_001], ("python", "RAISED")),
        **dict.fromkeys(in_sql, ("with_columns", "DIVIDE_BY_ZERO")),
        **dict.fromkeys(by_table, ("out/demands", "CHECK")),
    }
    assert numbers.ids() == [id_ for id_ in range(1, 100_001) if id_ not in refused]
    assert refused[33_333][2].startswith("Division by zero.")
    assert tries[0] <= 1 + 2 * 3 * math.ceil(math.log2(100_000))


@pytest.mark.long
@pytest.mark.promise("CD-16", "CD-22")
def test_a_run_killed_during_the_search_for_bad_rows_delivers_each_row_once(place: Place) -> None:
    """A second kill comes when the batch is decided. The next run delivers the batch."""
    for number, rows in enumerate([[1], range(2, 12), [12]], 1):
        place.land(f"{number}.json", [make_order(row) for row in rows])
    bad = "  - with_columns: {share: '1 / ((id - 5) * (id - 9))'}\n"
    text = ORDERS.replace("destinations:", f"{bad}destinations:")
    place.kill(text, "Sifted", 2)
    assert place.ids("tables/orders") == [1]
    place.kill(text, "BatchDecided", 3)
    assert place.ids("tables/orders") == [1]
    report = place.load().run()
    assert (report.status, report.balanced) == ("succeeded", True)
    assert place.ids("tables/orders") == [1, 2, 3, 4, 6, 7, 8, 10, 11, 12]
    assert [(json.loads(row["row"])["id"], row["code"]) for row in place.refused()] == [
        (5, "DIVIDE_BY_ZERO"),
        (9, "DIVIDE_BY_ZERO"),
    ]
    assert place.load().audit().balanced is True


@pytest.mark.promise("X2", "X8")
def test_rows_at_which_an_expression_raises_count_for_the_window(place: Place) -> None:
    """The second row trips the window. The batch delivers nothing, and the error shows the row with its cause."""
    place.land("1.json", [make_order(number) for number in range(1, 9)])
    bad = "  - with_columns: {share: '1 / ((id - 5) * (id - 7))'}\n"
    text = ORDERS.replace("destinations:", f"{bad}destinations:").replace("threshold: 500", "threshold: 2")
    report = place.load(text).run(check=False)
    assert report.error is not None
    assert (report.error.code, report.error.stage) == ("WINDOW", "with_columns#2")
    assert "batch 1, row 7" in report.error.message
    assert "Division by zero." in report.error.message
    assert (place.ids("tables/orders"), place.refused()) == ([], [])


@pytest.mark.connect
@pytest.mark.promise("CD-16", "SS-22")
def test_a_stage_decides_what_happens_to_a_row_at_which_an_expression_raises(
    numbers: Numbers, tries: list[int]
) -> None:
    """The row is refused with Spark's message, kept or discarded. A function before these stages is called at most
    twice for each row."""
    calls = numbers.folder / "calls"

    def function(rows: list[dict[str, Any]]) -> list[Any]:
        with calls.open("a") as file:
            file.writelines("x" for _ in rows)
        return rows

    stages: list[Stage] = [
        Handler(function),
        WithColumns({"y": "100 / (id - 3)"}),
        Filter("cast(if(id = 4, 'four', '4') as int) = 4", on_error="discard"),
        Require({"is a number": "cast(if(id = 5, 'five', '5') as int) = 5"}),
        WithColumns({"x": "double(9223372036854775807 + if(id = 6, 1, 0))"}, on_error="keep"),
        Filter("id > 0", when="1 / (id - 7) is not null", name="late"),
        Select(["id", "x"]),
    ]
    report = numbers.carried(stages, rows=9)
    refused = numbers.refused()
    assert {id_: why[:2] for id_, why in refused.items()} == {
        3: ("with_columns", "DIVIDE_BY_ZERO"),
        5: ("require", "CAST_INVALID_INPUT"),
        7: ("late", "DIVIDE_BY_ZERO"),
    }
    assert "'five'" in refused[5][2]
    assert (report.filtered, report.balanced, numbers.ids()) == (1, True, [1, 2, 6, 8, 9])
    assert tries[0] <= 1 + 2 * 5 * math.ceil(math.log2(9))
    assert len(calls.read_text()) <= 2 * 9


@pytest.mark.promise("CD-16")
def test_a_constraint_added_during_a_run_refuses_only_its_rows(place: Place) -> None:
    """The write that failed had landed nothing. The row is in the DLQ with the code `CHECK`."""
    place.land("a.json", [make_order(1)])
    place.land("b.json", [make_order(2), make_order(3), make_order(4)])

    def listen(event: object) -> None:
        if isinstance(event, BatchSettled) and event.batch.number == 1:
            place.spark.sql(
                f"alter table delta.`{place.folder}/tables/orders` add constraint not_three check (id <> 3)"
            )

    report = place.load(ORDERS).run(listeners=[listen])
    assert (report.nacked, report.balanced, place.ids("tables/orders")) == (1, True, [1, 2, 4])
    assert [(row["stage"], row["code"], row["destination"]) for row in place.refused()] == [
        ("orders/demands", "CHECK", "orders")
    ]


CELL = """
import math
from typing import TypedDict
from stages.python_call import keep, nack

LIMIT = 3

class Rooted(TypedDict):
    x: float

def root(rows: list[dict]) -> list[Rooted]:
    return [nack("too large") if row["id"] > LIMIT else {"x": math.sqrt(row["id"])} for row in rows]
"""


@pytest.mark.connect
@pytest.mark.promise("HP-14")
def test_a_function_of_a_notebook_cell_works(numbers: Numbers) -> None:
    """It is in no file. The names that it uses are sent to the workers with it."""
    cell: dict[str, Any] = {"__name__": "__main__"}
    exec(CELL, cell)  # noqa: S102 -- as a notebook runs a cell
    report = numbers.carried([Handler(cell["root"])], rows=4)
    assert (report.delivered, report.balanced) == ({"out": 3}, True)
    assert numbers.refused() == {4: ("python", "PYTHON", "too large")}
    found = numbers.spark.read.format("delta").load(str(numbers.folder / "out")).orderBy("id").collect()
    assert [round(row.x, 3) for row in found] == [1.0, 1.414, 1.732]


RAISING = {
    "raise_error(concat('no ', id))": "USER_RAISED_EXCEPTION",
    "assert_true(id < 0, concat('no ', id))": "USER_RAISED_EXCEPTION",
    "'x' rlike BAD": "INVALID_PARAMETER_VALUE",
    "size(split('x', BAD))": "EXPRESSION",
    "to_number(BAD, '99')": "INVALID_FORMAT",
    "timestamp_seconds(9223372036854775807 - id)": "EXPRESSION",
    "length(repeat('abcdefgh', 2147483647 - int(id)))": "EXPRESSION",
    "sequence(id, id + 5, -1)": "EXPRESSION",
    "size(array_repeat(id, 2147483647))": "COLLECTION_SIZE_LIMIT_EXCEEDED",
    "size(sequence(id, 9223372036854775807))": "COLLECTION_SIZE_LIMIT_EXCEEDED",
    "xpath_string(BAD, 'a')": "EXPRESSION",
    "format_string('%d', BAD)": "EXPRESSION",
    "from_json(BAD, 'a int', map('mode', 'FAILFAST')).a": "MALFORMED_RECORD_IN_PARSING",
    "map_from_arrays(array(id, 2), array(id))": "EXPRESSION",
    "substring_index(concat(BAD, '.b'), '.', -2147483648)": "EXPRESSION",
    "reflect('java.util.UUID', 'fromString', BAD)": "EXPRESSION",
}
"""Expressions that raise for every value of `id` and `BAD`, with the code of the refused row."""


@pytest.mark.connect
@pytest.mark.promise("CD-16", "SS-22")
def test_a_row_is_refused_for_any_error_of_an_expression(numbers: Numbers) -> None:
    """Errors without an SQL class, without a Spark name, or only of Java refuse their row, and the others pass. The
    stage may decide otherwise with `on_error`."""
    bad = "chr(40 + id - id)"  # Spark does not treat this parenthesis as a constant
    cases = "".join(f" when {id_} then cast({sql} as string)" for id_, sql in enumerate(RAISING, 1))
    stages: list[Stage] = [
        WithColumns({"y": f"case id{cases} end".replace("BAD", bad)}, name="raising"),
        Require({"is_good": "assert_true(id <> 31, 'no 31') is null"}, on_error="discard"),
        Filter(f"if(id = 32, 'x' rlike {bad}, true)", on_error="keep"),
        Select(["id"]),
    ]
    report = numbers.carried(stages, rows=34)
    refused = numbers.refused()
    assert {id_: why[:2] for id_, why in refused.items()} == {
        id_: ("raising", code) for id_, code in enumerate(RAISING.values(), 1)
    }
    assert [refused[1][2], refused[2][2]] == ["no 1", "no 2"]
    assert refused[4][2] == "PatternSyntaxException: Unclosed group near index 1"
    assert (report.filtered, report.nacked, report.balanced) == (1, len(RAISING), True)
    assert numbers.ids() == [id_ for id_ in range(len(RAISING) + 1, 35) if id_ != 31]


def test_an_assertion_about_several_rows_stops_the_run(numbers: Numbers) -> None:
    """It blames no single row, so no row is refused."""
    together = Sql("select id % 2 as id from rows group by 1 having assert_true(count(*) > 3) is null")
    with pytest.raises(PipelineFailed) as failed:
        numbers.carried([together], rows=5)
    error = failed.value.report.error
    assert error is not None
    assert error.code == "CARRY"
    assert "is not true!" in error.message
    assert (numbers.ids(), list((numbers.folder / "state").glob("dlq/part-*"))) == ([], [])


@pytest.mark.promise("HP-14", "HP-15", "CD-16")
def test_a_row_that_a_function_omits_affects_no_other_row(numbers: Numbers) -> None:
    """A list and a fresh frame that are too short refuse the row, and a frame with the old index filters it. The DLQ
    holds any reason."""
    reasons = {30: "\ud800", 31: "a\0b", 32: "x" * 1_000_000}

    def listed(rows: list[dict[str, Any]]) -> list[Any]:
        return [{"x": row["id"] / 2} for row in rows if row["id"] not in (7, 23)]

    def fresh(rows: pd.DataFrame) -> pd.DataFrame:
        return rows[rows["id"] != 11].reset_index(drop=True)

    def filtered(rows: pd.DataFrame) -> pd.DataFrame:
        return rows[~rows["id"].isin([3, 40])][::-1]

    def refused(rows: list[dict[str, Any]]) -> list[Any]:
        return [nack(reasons[row["id"]]) if row["id"] in reasons else keep for row in rows]

    stages = [Handler(listed, columns={"x": "double"}), Handler(fresh), Handler(filtered), Handler(refused)]
    report = numbers.carried([*stages], rows=40)
    assert (report.read, report.filtered, report.nacked, report.delivered) == (40, 2, 6, {"out": 32})
    assert report.balanced is True
    found = numbers.refused()
    assert {id_: why[:2] for id_, why in found.items()} == {
        7: ("python", "ANSWER"),
        23: ("python", "ANSWER"),
        11: ("python#2", "ANSWER"),
        **dict.fromkeys(reasons, ("python#4", "PYTHON")),
    }
    assert [found[id_][2] for id_ in reasons] == ["\\ud800", "a\0b", "x" * 1_000_000]
    delivered = numbers.spark.read.format("delta").load(str(numbers.folder / "out")).collect()
    assert {row.id: row.x for row in delivered} == {id_: id_ / 2 for id_ in range(1, 41) if id_ not in {3, 40, *found}}


@pytest.mark.parametrize(
    ("raises", "tried"), [(ModuleNotFoundError("No module named 'shop'"), 1), (ConnectionRefusedError("nobody"), 2)]
)
def test_an_error_that_no_row_causes_fails_the_batch(numbers: Numbers, raises: Exception, tried: int) -> None:
    """An unreachable server is tried again, and a missing package is not. The DLQ stays empty."""
    calls = numbers.folder / "calls"

    def function(rows: list[dict[str, Any]]) -> list[Any]:
        with calls.open("a") as file:
            file.write("x")
        raise raises

    with pytest.raises(PipelineFailed) as failed:
        numbers.carried([Handler(function)], rows=1)
    error = failed.value.report.error
    assert error is not None
    assert f"raised {type(raises).__name__}: {raises}" in error.message
    assert "Traceback" not in error.message
    assert (len(calls.read_text()), numbers.refused()) == (tried, {})


def test_an_expression_that_raises_for_every_row_fails_the_batch_after_a_few_rows(
    numbers: Numbers, tries: list[int]
) -> None:
    """The rows are not at fault, so no row is refused."""
    with pytest.raises(PipelineFailed, match="more than 3 rows of the batch make a stage fail, the last with: "):
        numbers.carried([Filter("string(id) rlike '('")], rows=1000, raising_rows=3)
    assert (numbers.ids(), tries) == ([], [])
