"""The kinds that the how-tos show keep the promises of their contracts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pages import ROOT, list_blocks


def read_classes(page: str) -> dict[str, Any]:
    """What a page's files and suites define."""
    found: dict[str, Any] = {"__name__": __name__}
    for block in list_blocks(ROOT / f"runners/docs/howto/{page}.md"):
        if block.language == "python" and (block.note.startswith("file: ") or "class Test" in block.text):
            exec(block.text, found)  # noqa: S102  (it is our own page)
    return found


@pytest.mark.spark
class TestTheOrigin(read_classes("write-an-origin")["TestNumbers"]):  # type: ignore[misc]
    """Its batches hold each number once, also when they are read again."""


@pytest.mark.spark
class TestTheStage(read_classes("write-a-stage")["TestCapitals"]):  # type: ignore[misc]
    """It does the same to rows of a batch that is decided and of one that is not."""


@pytest.mark.spark
class TestTheDestination(read_classes("write-a-destination")["TestParquet"]):  # type: ignore[misc]
    """It writes each row of a batch, whatever its columns are called."""
