"""What a definition may set for the DLQ."""

from __future__ import annotations

import re
from typing import Any

import pytest

from destinations import Delta, Discard, Files, Log, Memory
from destinations.dlq import Dlq
from stages import Deduplicate, Filter, Sql

FALLBACK = Delta(path="/other/refused")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"on_failure": "go on"}, "on_failure: expected stop or fallback, got 'go on'"),
        ({"on_failure": "fallback"}, "on_failure: expected a fallback beside it"),
        ({"fallback": FALLBACK}, "fallback: it has no effect; set on_failure: fallback"),
        ({"on_failure": "fallback", "fallback": Files(path="x")}, "fallback: expected delta, since"),
        (
            {"on_failure": "fallback", "fallback": Delta(path="x", mode="replace")},
            "fallback: expected a destination that only adds rows",
        ),
        (
            {"on_failure": "fallback", "fallback": Delta(path="x", stages=[Filter("true")])},
            "fallback: expected one table without stages",
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
        ({"budget": 0}, "budget: expected at least 1 row, got 0"),
        ({"budget": 5, "destination": Log()}, "budget: expected a DLQ of the kind delta"),
    ],
)
def test_what_could_not_work_is_refused_with_the_name_of_its_option(given: dict[str, Any], said: str) -> None:
    """And with what was expected."""
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        Dlq(window=0, **given)


def test_one_copy_and_several_are_given_alike() -> None:
    """They count among the destinations that are not in the state, and so does the fallback."""
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
def test_a_code_may_have_a_period_of_its_own(retain: Any, periods: dict[str, str]) -> None:
    """All others have the default."""
    assert Dlq(retain=retain).periods == periods
