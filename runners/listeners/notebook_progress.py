"""The progress of a run in the cell of a notebook that waits for it."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import Any

from runners.listeners.run_progress import RunProgress, call_every
from runners.model.events import Listener
from runners.model.text import escape_line

OFTEN = 1.0
"""The seconds between two looks at a run."""


@contextlib.contextmanager
def show_in_notebook(name: str) -> Iterator[list[Listener]]:
    """Below the cell, a line that goes on changing while the run works. Outside of a notebook there is no listener.

    A notebook that cannot show it changes nothing for the run.
    """
    handle = _open_display(f"{name}: starting")
    if handle is None:
        yield []
        return
    progress = RunProgress(name)

    def show() -> None:
        handle.update(_make_bundle(progress.describe()), raw=True)

    with call_every(OFTEN, show):
        yield [progress]
    with contextlib.suppress(Exception):
        show()


def _open_display(line: str) -> Any:
    """A display of IPython's that can be changed; None where there is no notebook."""
    python = sys.modules.get("IPython")
    with contextlib.suppress(Exception):
        if python is not None and getattr(python.get_ipython(), "kernel", None) is not None:
            display = importlib.import_module("IPython.display").display
            return display(_make_bundle(line), raw=True, display_id=True)
    return None


def _make_bundle(line: str) -> dict[str, str]:
    return {"text/plain": escape_line(line)}
