"""The kinds that the how-to guides show keep the promises of their contracts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pages import ROOT, list_blocks


def read_classes(page: str) -> dict[str, Any]:
    """Return the names that a page's files and test suites define."""
    found: dict[str, Any] = {"__name__": __name__}
    for block in list_blocks(ROOT / f"runners/docs/howto/{page}.md"):
        if block.language == "python" and (block.note.startswith("file: ") or "class Test" in block.text):
            exec(block.text, found)  # noqa: S102  (the page is ours)
    return found


@pytest.mark.spark
class TestTheOrigin(read_classes("write-an-origin")["TestNumbers"]):  # type: ignore[misc]
    """The origin of the guide returns each number exactly once, also when its batches are read again."""


@pytest.mark.spark
class TestTheStage(read_classes("write-a-stage")["TestCapitals"]):  # type: ignore[misc]
    """The stage of the guide changes rows in the same way in a decided batch and in a straight batch."""


@pytest.mark.spark
class TestTheDestination(read_classes("write-a-destination")["TestParquet"]):  # type: ignore[misc]
    """The destination of the guide writes each row of a batch, with any names of columns."""
