"""Tells hooks of a run, each in a thread of its own: one that hangs holds up neither batches nor the other hooks."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from origins.batch import JSON
from origins.functions import function_of
from origins.quantities import seconds
from origins.secret import cut
from runners.definitions.secrets import without
from runners.listeners.hook import Hook
from runners.listeners.scribe import Scribe
from stages.answer import as_text

PATIENCE = 30.0
"""How many seconds a run that has ended, and has let its pipeline go, waits for its hooks."""
ROOM = 100
"""So many events wait for a hook at most."""

log = logging.getLogger("wherry")


class NotTold(Exception):
    """A hook that would not be told, and why."""


class Herald:
    """The hooks of a run."""

    def __init__(
        self, hooks: Sequence[Hook], secrets: Mapping[str, str], *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._tellers = [_Teller(hook, secrets, sleep) for hook in hooks]
        self._secrets = secrets

    def tell(self, facts: Mapping[str, JSON]) -> None:
        """Have all hooks told that want to be. Never waits."""
        for teller in self._tellers:
            if facts["event"] in teller.hook.moments:
                teller.scribe.put(facts)

    def ended(self, name: str, patience: float | None = None) -> None:
        """Wait a little for those that are still being told, and say which were not."""
        until = time.monotonic() + (PATIENCE if patience is None else patience)
        for at, teller in enumerate(self._tellers):
            whole, hook = teller.scribe.flush(max(0.0, until - time.monotonic())), f"hooks[{at}] ({teller.hook.kind})"
            lost = teller.lost + teller.scribe.dropped
            if not whole:
                log.warning("%s: %s is still being told, and is waited for no more.", name, hook)
            if lost:
                why = teller.why or without(self._secrets, teller.scribe.error)
                log.warning("%s: %s was not told %d times: %s", name, hook, lost, why)


class _Teller:
    """Tells one hook in a thread beside, and tries again."""

    def __init__(self, hook: Hook, secrets: Mapping[str, str], sleep: Callable[[float], None]) -> None:
        self.hook = hook
        self.scribe: Scribe[Mapping[str, JSON]] = Scribe(self._tell_all, room=ROOM)
        self.lost = 0
        """How often it could not be told."""
        self.why = ""
        self._secrets = secrets
        self._sleep = sleep

    def _tell_all(self, items: Sequence[Mapping[str, JSON]]) -> None:
        for facts in items:
            why = self._told(facts)
            if why:
                self.lost, self.why = self.lost + 1, without(self._secrets, why)

    def _told(self, facts: Mapping[str, JSON]) -> str:
        """Why it could not be told; nothing if it was."""
        why = ""
        for attempt in range(self.hook.attempts):
            if attempt:
                self._sleep(seconds(self.hook.wait) * 2 ** (attempt - 1))
            try:
                _tell(self.hook, facts)
            except NotTold as error:
                why = str(error)
            except (Exception, SystemExit) as error:  # the edge of the thread: a function of the user's own
                why = f"{type(error).__name__}: {as_text(error)}"
            else:
                return ""
        return why


def _tell(hook: Hook, facts: Mapping[str, JSON]) -> None:
    if hook.python is not None:
        function_of(hook.python)(json.loads(json.dumps(facts)))
    elif hook.webhook is not None:
        _post(hook.webhook, facts, seconds(hook.timeout))
    else:
        _start(hook.words, facts, seconds(hook.timeout))


def _post(address: str, facts: Mapping[str, JSON], timeout: float) -> None:
    headers = {"Content-Type": "application/json", "User-Agent": "wherry"}
    request = urllib.request.Request(address, json.dumps(facts).encode(), headers, method="POST")  # noqa: S310
    try:
        with urllib.request.build_opener(_NoWayRound).open(request, timeout=timeout):
            pass
    except urllib.error.HTTPError as error:
        error.close()
        raise NotTold(f"it answered {error.code}") from error
    except Exception as error:  # whatever it is, its words may have the address, which is a secret
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise NotTold(f"it gave no answer within {timeout:g} s") from error
        why = getattr(reason, "strerror", None) or type(reason).__name__
        raise NotTold(f"it cannot be reached: {why}") from error


class _NoWayRound(urllib.request.HTTPRedirectHandler):
    """Facts go where they were to go, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _start(words: Sequence[str], facts: Mapping[str, JSON], timeout: float) -> None:
    told = {f"WHERRY_{name.upper()}": str(facts[name]) for name in ("event", "pipeline", "run", "status")}
    try:
        ended = subprocess.run(
            words,
            input=json.dumps(facts),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout,
            env={**os.environ, **told},
        )
    except subprocess.TimeoutExpired as error:
        raise NotTold(f"it did not end within {timeout:g} s") from error
    except OSError as error:
        raise NotTold(f"it cannot be started: {error.strerror}") from error
    if ended.returncode:
        said = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise NotTold(f"it ended with {ended.returncode}: {cut(said, 200)}")
