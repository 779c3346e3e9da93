"""The arrivals that webhooks reported, until a run has begun after them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote


@dataclass(frozen=True)
class Arrivals:
    """What arrived and waits for a run: a file for each arrival. Any number of servers may share the folder."""

    folder: Path

    def note(self, pipeline: str) -> None:
        """Let a pipeline wait for a run. Raise `OSError` if that cannot be noted."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.folder / f"{quote(pipeline, safe='')}.{uuid.uuid4().hex}").touch()

    def list_waiting(self) -> Mapping[str, Sequence[Path]]:
        """Return what waits, by pipeline."""
        found: dict[str, list[Path]] = {}
        for file in self.folder.glob("*.*"):
            found.setdefault(unquote(file.name.rpartition(".")[0]), []).append(file)
        return found

    def settle(self, arrived: Sequence[Path]) -> None:
        """Let these wait no longer."""
        for file in arrived:
            file.unlink(missing_ok=True)
