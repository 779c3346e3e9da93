"""What an operator declares that no state can know."""

from __future__ import annotations

import pytest

from runners.model.errors import Refusal
from runners.running.compatibility import OperatorOverrides


def test_an_override_needs_a_reason() -> None:
    """The ledger keeps the reason. Without an override, none is needed."""
    with pytest.raises(Refusal, match="needs a reason"):
        OperatorOverrides(moved=("orders",), reason=" ")
    assert not OperatorOverrides()


def test_an_unknown_name_is_refused() -> None:
    """The error lists the known names."""
    ruling = OperatorOverrides(moved=("orders",), fresh=("ordres",), reason="a new disk")
    with pytest.raises(Refusal, match="Nothing has the name 'ordres'; there are: files, orders"):
        ruling.check({"orders", "files"})
