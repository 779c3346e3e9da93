"""The arrivals that webhooks reported, until a run has ended after them."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

_REMEMBERED = 900.0
"""For how many seconds an arrival is known after its run. Its request can be sent again for a shorter time."""


@dataclass(frozen=True)
class Arrivals:
    """What arrived and waits for a run: a file for each arrival. Any number of servers may share the folder."""

    folder: Path

    def note(self, pipeline: str, id_: str) -> None:
        """Let a pipeline wait for a run. The same id again changes nothing. Raise `OSError` if it cannot be noted."""
        self._done.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{quote(pipeline, safe='')}.{hashlib.sha256(id_.encode()).hexdigest()[:32]}"
        if not (self._done / name).exists():
            (self.folder / name).touch()
            opened = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)

    def list_waiting(self) -> Mapping[str, Sequence[Path]]:
        """Return what waits, by pipeline."""
        found: dict[str, list[Path]] = {}
        for file in self.folder.glob("*.*"):
            found.setdefault(unquote(file.name.rpartition(".")[0]), []).append(file)
        return found

    def settle(self, arrived: Sequence[Path]) -> None:
        """Let these wait no longer. Their ids are known for some time."""
        for file in arrived:
            with contextlib.suppress(FileNotFoundError):  # another server settled it
                os.utime(file)
                file.replace(self._done / file.name)
        times = {file: file.stat().st_mtime for file in self._done.glob("*.*")}
        for file, at in times.items():
            if at < max(times.values()) - _REMEMBERED:
                file.unlink(missing_ok=True)

    @property
    def _done(self) -> Path:
        return self.folder / "done"
