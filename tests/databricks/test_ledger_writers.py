"""Processes that append to one ledger in a catalog, each with its session of one kind of compute."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.databricks.notebook import COMPUTES, list_oldest_computes
from tests.databricks.workspace import begin_on, open_compute

if TYPE_CHECKING:
    from tests.scenarios.shared_jvm import Server

pytestmark = [pytest.mark.spark, pytest.mark.long]
TURNS = 10


@pytest.mark.parametrize("name", list_oldest_computes())
def test_two_processes_that_append_at_once_leave_no_gap_and_no_duplicate(
    connect_server: Server, tmp_path: Path, name: str
) -> None:
    """Either may find no ledger and make it. Each entry that landed is stored once."""
    from pyspark.sql.connect.session import SparkSession

    compute, schema = COMPUTES[name], re.sub(r"\W", "_", f"ledger_{name}")
    spark: Any = SparkSession(connect_server.get().connect)
    spark.sql(f"create schema {schema}")
    with open_compute(compute, connect_server) as (address, refusals):
        words = ("tests.runners.state.ledger.appender", f"table:{schema}.orders_ledger")
        both = [
            begin_on(compute, address, *words, each, str(TURNS), "1000", folder=tmp_path, hidden=None)
            for each in ("left", "right")
        ]
        printed = [process.communicate()[0] for process in both]
    stored = spark.table(f"{schema}.orders_ledger").collect()
    spark.sql(f"drop schema {schema} cascade")
    spark.client.close()
    told = [re.findall(r"^(?:left|right)\d+$", text, re.MULTILINE) for text in printed]
    assert [len(names) for names in told] == [TURNS, TURNS], printed
    assert sorted(row["id"] for row in stored) == sorted(told[0] + told[1])
    assert sorted(row["seq"] for row in stored) == list(range(1, 2 * TURNS + 1))
    assert refusals == []
