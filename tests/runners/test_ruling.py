"""What a person says that no state can know."""

from __future__ import annotations

import pytest

from runners.errors import Refusal
from runners.ruling import Ruling


def test_a_ruling_needs_a_reason() -> None:
    """Which is kept in the ledger; saying nothing needs none."""
    with pytest.raises(Refusal, match="needs a reason"):
        Ruling(moved=("orders",), reason=" ")
    assert not Ruling()


def test_a_name_that_nothing_has_is_refused() -> None:
    """With the names that there are."""
    ruling = Ruling(moved=("orders",), fresh=("ordres",), reason="a new disk")
    with pytest.raises(Refusal, match="Nothing is called 'ordres'; there are: files, orders"):
        ruling.check({"orders", "files"})
