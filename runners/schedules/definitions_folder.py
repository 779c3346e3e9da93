"""A directory of definitions, watched: which files came, changed, broke and went."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from origins.errors import WherryError
from runners.definitions.definition import Definition
from runners.errors import Refusal
from runners.schedules.roster import Found

Stamp = tuple[int, int, int]
_UNSEEN: Stamp = (0, 0, 0)
"""Of a file that is there and cannot be looked at; to read it says why."""


@dataclass(kw_only=True)
class DefinitionsFolder:
    """The definitions of a directory as they are now. A file that is still being written is waited for."""

    path: Path
    load: Callable[[Path], Definition]
    _stamps: dict[str, Stamp] = field(default_factory=dict)
    """Size and time of each file as it was read."""
    _found: dict[str, Definition | str] = field(default_factory=dict)
    _unsettled: dict[str, Stamp] = field(default_factory=dict)

    def open(self) -> Found:
        """What lies there. Raises `Refusal` where that cannot be said."""
        if not self.path.is_dir():
            raise Refusal(f"There is no directory {self.path}.", hint="Name the one in which the definitions lie.")
        try:
            self._unsettled = self._listed()
        except OSError as error:
            raise Refusal(
                f"The directory {self.path} cannot be listed: {error.strerror}.", hint="Give this user the right to."
            ) from error
        self.changed()
        return dict(self._found)

    def changed(self) -> Found | None:
        """All definitions, where something differs from what was told last; else None.

        What differs is told once it is the same at two looks. A directory that cannot be read has not changed.
        """
        try:
            stamps = self._listed()
        except OSError:
            return None
        settled = {file for file, stamp in stamps.items() if self._unsettled.get(file) == stamp}
        new = sorted(file for file in settled if self._stamps.get(file) != stamps[file])
        gone = [file for file in self._stamps if file not in stamps]
        self._unsettled = stamps
        for file in gone:
            del self._stamps[file], self._found[file]
        for file in new:
            self._stamps[file] = stamps[file]
            self._found[file] = self.read(file)
        return dict(self._found) if new or gone else None

    def read(self, file: str) -> Definition | str:
        """The definition in a file as it is now, or what is wrong with it. To open a named pipe may take for ever."""
        try:
            if (self.path / file).exists() and not (self.path / file).is_file():
                return f"{file}: expected a regular file, as a definition is; move what has this name elsewhere"
            return self.load(self.path / file)
        except WherryError as error:
            return str(error)
        except Exception as error:  # a module of the user's own that a definition names
            return f"{file}: {type(error).__name__}: {error}"

    def _listed(self) -> dict[str, Stamp]:
        stamps = {}
        for file in sorted(self.path.iterdir()):
            if file.suffix in (".yaml", ".yml") and not file.name.startswith("."):
                try:
                    status = file.stat()
                except FileNotFoundError:
                    continue
                except OSError:
                    stamps[file.name] = _UNSEEN
                    continue
                stamps[file.name] = (status.st_mtime_ns, status.st_size, status.st_ino)
        return stamps
