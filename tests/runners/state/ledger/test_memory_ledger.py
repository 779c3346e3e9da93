"""The ledger in memory keeps the contract of ledgers."""

from __future__ import annotations

import pytest

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
