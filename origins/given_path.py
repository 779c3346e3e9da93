"""A path that was given relative to its definition: it is used as a whole path, and recorded as it was given."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, SupportsIndex

from origins.names import SCHEME


class GivenPath(str):
    """A whole path; `given` is the same as it stands in the definition."""

    given: str

    def __new__(cls, path: str, given: str) -> GivenPath:
        made = super().__new__(cls, path)
        made.given = given
        return made

    def replace(self, old: str, new: str, count: SupportsIndex = -1) -> GivenPath:
        return GivenPath(super().replace(old, new, count), self.given.replace(old, new, count))

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)

    def __deepcopy__(self, memo: object) -> GivenPath:
        return self


def list_given_paths(paths: Iterable[str | None]) -> list[str]:
    """The paths as they were given, where all of them are relative; else none, for they name one place for ever."""
    found = []
    for path in paths:
        given = path.given if isinstance(path, GivenPath) else path
        if not given or os.path.isabs(given) or SCHEME.match(given):
            return []
        found.append(os.path.normpath(given))
    return found
