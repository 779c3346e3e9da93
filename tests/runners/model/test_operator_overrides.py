"""What a person says that no state can know."""

from __future__ import annotations

import pytest

from runners.model.errors import Refusal
from runners.running.compatibility import OperatorOverrides


def test_a_ruling_needs_a_reason() -> None:
    """Which is kept in the ledger; saying nothing needs none."""
    with pytest.raises(Refusal, match="needs a reason"):
        OperatorOverrides(moved=("orders",), reason=" ")
    assert not OperatorOverrides()


def test_a_name_that_nothing_has_is_refused() -> None:
    """With the names that there are."""
    ruling = OperatorOverrides(moved=("orders",), fresh=("ordres",), reason="a new disk")
    with pytest.raises(Refusal, match="Nothing has the name 'ordres'; there are: files, orders"):
        ruling.check({"orders", "files"})
