"""What a person says that no state can know. It is kept in the ledger with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from origins.batch import JSON
from runners.errors import Refusal


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """A person's word for one run."""

    moved: tuple[str, ...] = ()
    """Origins and destinations that lie elsewhere now, with the same content."""
    fresh: tuple[str, ...] = ()
    """Origins and destinations in whose place there is something else now: an origin is read from its beginning, a
    destination takes part from the next batch."""
    forget: tuple[str, ...] = ()
    """Destinations that are gone, or refuse what was decided for them, and get no open batch any more."""
    assume: Literal["", "delivered", "missing"] = ""
    """What holds for an open batch of which its destination cannot say whether it has it."""
    reason: str = ""

    def __post_init__(self) -> None:
        if self and not self.reason.strip():
            raise Refusal("A ruling needs a reason; it is kept in the ledger.", hint='--reason "…"')

    def __bool__(self) -> bool:
        return bool(self.moved or self.fresh or self.forget or self.assume)

    def check(self, names: set[str]) -> None:
        """Raises `Refusal` for what nothing is called."""
        for name in (*self.moved, *self.fresh):
            if name not in names:
                raise Refusal(f"Nothing is called '{name}'; there are: {', '.join(sorted(names))}.")

    def json(self) -> Mapping[str, JSON]:
        """As the ledger keeps it."""
        return {
            "moved": list(self.moved),
            "fresh": list(self.fresh),
            "forget": list(self.forget),
            "assume": self.assume,
            "reason": self.reason,
        }
