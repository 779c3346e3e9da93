"""The options of the DLQ in a definition."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import pytest

from destinations import Delta, Destination, Discard, Files, Kafka, Log, Memory, Python
from destinations.capabilities import find_read_back
from destinations.dlq import Dlq
from stages import Deduplicate, Filter, Sql

FALLBACK = Delta(path="/other/refused")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"on_failure": "go on"}, "on_failure: expected stop or fallback, got 'go on'"),
        ({"on_failure": "fallback"}, "on_failure: expected a fallback beside it"),
        ({"fallback": FALLBACK}, "fallback: it has no effect; set on_failure: fallback"),
        (
            {"on_failure": "fallback", "fallback": Delta(path="x", mode="replace")},
            "fallback: expected a destination that only adds rows",
        ),
        (
            {"on_failure": "fallback", "fallback": Delta(path="x", stages=[Filter("true")])},
            "fallback: expected one place without stages",
        ),
        ({"on_failure": "fallback", "fallback": FALLBACK, "destination": Log()}, "on_failure: expected a DLQ of the"),
        (
            {"on_failure": "fallback", "fallback": FALLBACK, "destination": Delta(path="/other/refused")},
            "fallback: expected another place than that of the DLQ",
        ),
        ({"copy": [Memory(), Delta(path="x", mode="replace")]}, "copy: expected a destination that only adds rows"),
        ({"copy": [Memory()], "destination": Discard()}, "copy: expected a DLQ that keeps rows, got discard"),
        (
            {"copy": Memory(stages=[Deduplicate(keys=["id"])])},
            "copy: expected stages that take each row by itself, such as filter and select, got deduplicate",
        ),
        ({"copy": [Memory(stages=[Sql("select * from rows")])]}, "copy: expected stages that take each row by itself"),
        ({"copy": Memory(stages=[Filter("rand() < 0.5")])}, "copy: expected stages that take each row by itself"),
        ({"budget": 0}, "budget: expected a number of rows, such as 100000, got 0"),
        ({"budget": "5MiB"}, "budget: expected a number of rows, such as 100000, got '5MiB'"),
        ({"budget": 5, "destination": Log()}, "budget: expected a DLQ of the kind delta"),
    ],
)
def test_an_option_that_cannot_work_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    """The error names what was expected."""
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        Dlq(window=0, **given)


@pytest.mark.parametrize(
    ("fallback", "reads"),
    [
        (Delta(path="x"), True),
        (Files(path="x"), True),
        (Files(path="x", format="json"), True),
        (Files(path="x", format="csv"), False),
        (Files(path="x", partition_by=["code"]), False),
        (Kafka(servers="b:1", topic="t", key="id"), True),
        (Kafka(servers="b:1", topic="t", headers=["code"]), False),
        (Kafka(servers="b:1", topic="t", format="text", value="id"), False),
        (Kafka(servers="b:1", topic_column="code"), False),
        (Python("keep:keep"), False),
        (Log(), False),
        (Memory(), False),
        (Discard(), False),
    ],
)
def test_a_fallback_is_a_destination_from_which_rows_are_read_back(fallback: Destination, reads: bool) -> None:
    """It must keep all columns, or no merge could bring the rows into the DLQ."""
    assert (find_read_back(fallback) is not None) == reads
    said = r"^fallback: expected a destination from which a merge can read the rows back: .*; got \w+$"
    with nullcontext() if reads else pytest.raises(ValueError, match=said):
        assert Dlq(window=0, on_failure="fallback", fallback=fallback).fallback is fallback


def test_copies_are_given_as_one_or_as_several() -> None:
    """The copies and the fallback are among the destinations that are not in the state."""
    one, other = Memory(name="one"), Memory(name="other", stages=[Filter("code = 'CAST'")])
    assert Dlq(copy=one).copies == (one,)
    dlq = Dlq(copy=[one, other], on_failure="fallback", fallback=FALLBACK)
    assert list(dlq.given_destinations) == [one, other, FALLBACK]


@pytest.mark.parametrize(
    ("retain", "periods"),
    [
        ("7d", {"default": "7d"}),
        ({"CAST": "7d"}, {"default": "30d", "CAST": "7d"}),
        ({"default": "1d", "CAST": "7d"}, {"default": "1d", "CAST": "7d"}),
    ],
)
def test_a_code_may_have_a_separate_period(retain: Any, periods: dict[str, str]) -> None:
    """All other codes have the default period."""
    assert Dlq(retain=retain).periods == periods
