"""What a run calls: a command, a webhook or a Python function, at its beginning or at its end."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from origins.batch import JSON
from origins.functions import check_function
from origins.quantities import parse_seconds

Moment = Literal["start", "success", "failure", "stop"]
MOMENTS: Mapping[str, str] = {"succeeded": "success", "failed": "failure", "stopped": "stop"}
"""The moment at which a run ends, by how it does."""


@dataclass(frozen=True, kw_only=True)
class Hook:
    """A call at the beginning or end of a run: one of `command`, `webhook` and `python`. Each gets the same JSON."""

    on: Moment | Sequence[Moment] = ("failure",)
    """When Wherry calls it: at the start of a run, or after it succeeded, failed or was stopped."""
    command: str | Sequence[str] | None = field(default=None, metadata={"like": "[notify, --urgent]"})
    """A program with its arguments, without a shell. It reads the facts from standard input."""
    webhook: str | None = field(default=None, repr=False, metadata={"secret": True, "like": '"${secret:WEBHOOK}"'})
    """An address that gets the facts by POST. Any status below 300 counts as success."""
    python: str | Callable[..., Any] | None = field(default=None, metadata={"path": True, "like": "alerts:page"})
    """A function as `module:function`, in a file beside the definition or in an installed module. It gets the facts."""
    attempts: int = 3
    """How often Wherry tries in all."""
    wait: str = field(default="1s", metadata={"like": "10s"})
    """How long Wherry waits before the second try. Each later wait is twice as long."""
    timeout: str = field(default="10s", metadata={"like": "1m"})
    """How long a command or an answer may take."""

    def __post_init__(self) -> None:
        given = [name for name in ("command", "webhook", "python") if getattr(self, name)]
        if len(given) != 1:
            got = " and ".join(given) or "none of them"
            raise ValueError(f"expected one of command, webhook and python, got {got}")
        wrong = [moment for moment in self.moments if moment not in ("start", *MOMENTS.values())]
        if wrong or not self.moments:
            raise ValueError(f"on: expected start, success, failure or stop, got {', '.join(wrong) or 'nothing'}")
        if self.webhook and not self._is_address:
            raise ValueError("webhook: expected an address that begins with https:// or http://")
        if self.python is not None:
            check_function("python", self.python)
        if self.attempts < 1:
            raise ValueError(f"attempts: expected at least 1, got {self.attempts}")
        for name in ("wait", "timeout"):
            try:
                parse_seconds(getattr(self, name))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        try:
            self.words  # noqa: B018  (it is parsed to see whether it can be)
        except ValueError as error:
            raise ValueError(f"command: {error}") from error

    @property
    def _is_address(self) -> bool:
        """Whether it can be one; a secret that only stands there by name, for what only looks at a state, may be."""
        parts = urlsplit(self.webhook or "")
        return (parts.scheme in ("http", "https") and bool(parts.hostname)) or "${secret:" in (self.webhook or "")

    @property
    def moments(self) -> Sequence[str]:
        """The moments at which it is called."""
        return (self.on,) if isinstance(self.on, str) else tuple(self.on)

    @property
    def words(self) -> Sequence[str]:
        """The words of its command."""
        return shlex.split(self.command) if isinstance(self.command, str) else tuple(self.command or ())

    @property
    def kind(self) -> str:
        """What it is."""
        return next(name for name in ("command", "webhook", "python") if getattr(self, name))


def make_start_facts(pipeline: str, run: str, at: str) -> dict[str, JSON]:
    """The facts when a run begins."""
    return {"event": "start", "pipeline": pipeline, "run": run, "at": at, "status": "running"}


def make_end_facts(report: Mapping[str, JSON], at: str) -> dict[str, JSON]:
    """The facts of a run that has ended: its report but for what only programs of ours read."""
    left_out = ("lanes", "stages", "spent", "snapshot")
    kept = {name: value for name, value in report.items() if name not in left_out}
    return {"event": MOMENTS[report["status"]], "at": at, **kept}
