"""The ledger in memory keeps the contract of ledgers."""

from __future__ import annotations

import pytest

from runners.model.entry import Entry
from runners.state.ledger import Ledger
from tests.runners.state.ledger.conformance import LedgerConformance
from tests.runners.state.ledger.memory_ledger import MemoryLedger


@pytest.mark.promise("CN-06", "HP-13")
class TestMemoryLedger(LedgerConformance):
    """Users of the same object share the ledger."""

    @pytest.fixture(autouse=True)
    def _ledger(self) -> None:
        self.shared = MemoryLedger()

    def ledger(self) -> Ledger:
        return self.shared


def test_a_later_change_of_a_body_does_not_change_the_ledger() -> None:
    """The ledger keeps the body that was appended."""
    ledger, body = MemoryLedger(), {"offset": [1]}
    ledger.append([Entry(kind="set", body=body)], after=0)
    body["offset"].append(2)
    assert ledger.read()[0].body == {"offset": [1]}
