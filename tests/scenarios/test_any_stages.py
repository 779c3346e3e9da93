"""Random stages process random rows in batches of random size. Every row ends in exactly one place."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from destinations.dlq import Dlq
from runners.model.spec import BatchOptions, RunOptions
from runners.pipeline import Pipeline
from stages.cast import Cast
from stages.columns import WithColumns
from stages.filter import Filter
from stages.require import Require
from stages.sql import Sql
from stages.stage import Stage
from tests.scenarios.conftest import Place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

ROW = st.fixed_dictionaries(
    {
        "a": st.one_of(st.none(), st.sampled_from(["0", "1", "2", "7", "x", "", "1e3", "9999999999"])),
        "b": st.one_of(st.none(), st.integers(-2, 3)),
    }
)


def cast(row: dict[str, Any]) -> str:
    text = row["a"]
    if text is None or isinstance(text, int):
        return "live"
    if not text.isdigit() or int(text) > 2**31 - 1:
        return "refused"
    row["a"] = int(text)
    return "live"


def require(row: dict[str, Any]) -> str:
    return "live" if row["b"] is not None and row["b"] > -2 else "refused"


def keep(row: dict[str, Any]) -> str:
    return "live" if row["b"] is not None and row["b"] != 0 else "filtered"


def divide(row: dict[str, Any]) -> str:
    row["c"] = None if row["b"] is None else row["b"]
    return "live"


STEPS: list[tuple[Stage, Callable[[dict[str, Any]], str]]] = [
    (Cast({"a": "int"}), cast),
    (Require({"above": "b > -2"}), require),
    (Filter("b != 0"), keep),
    (WithColumns({"c": "case when b = 0 then 0 else b * b / b end"}), divide),
    (Sql("select * from rows"), lambda row: "live"),
]


@pytest.mark.promise("CD-16", "SS-03")
@settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink an example takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    derandomize=True,
)
@given(
    files=st.lists(st.lists(ROW, max_size=12), min_size=1, max_size=5),
    chosen=st.lists(st.sampled_from(range(len(STEPS))), min_size=1, max_size=6),
    size=st.integers(1, 4),
)
@pytest.mark.promise("CN-13")
def test_every_row_ends_in_exactly_one_place(
    spark: SparkSession, files: list[list[dict[str, Any]]], chosen: list[int], size: int
) -> None:
    """The table, the DLQ and the filtered rows match a calculation of the same stages in Python, row by row."""
    from destinations.delta import Delta
    from origins.files import Files

    place = Place(Path(tempfile.mkdtemp()), spark)
    expected: dict[str, list[int]] = {"live": [], "refused": [], "filtered": []}
    number = 0
    for index, rows in enumerate(files):
        landed = []
        for row in rows:
            number += 1
            landed.append({"id": number, **row})
            expected[told({**row}, chosen)].append(number)
        place.land(f"{index}.json", landed)
    pipeline = Pipeline(
        name="orders",
        origin=Files(path=str(place.folder / "landing"), format="json", schema="id long, a string, b int"),
        stages=[STEPS[step][0] for step in chosen],
        destinations=[Delta(path=str(place.folder / "tables/orders"))],
        dlq=Dlq(window=0),
        state=str(place.folder / ".wherry/orders"),
        run=RunOptions(batch=BatchOptions(files=size)),
    )
    report = pipeline.run()
    assert place.ids("tables/orders") == expected["live"]
    assert sorted(json.loads(row["row"])["id"] for row in place.refused()) == expected["refused"]
    assert (report.filtered, report.balanced) == (len(expected["filtered"]), True)


def told(row: dict[str, Any], chosen: list[int]) -> str:
    for step in chosen:
        became = STEPS[step][1](row)
        if became != "live":
            return became
    return "live"
