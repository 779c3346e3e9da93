"""Calls the hooks of a run, each in a separate thread. A hook that hangs delays neither batches nor other hooks."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from origins.batch import JSON
from origins.functions import load_function
from origins.quantities import parse_seconds
from origins.secret import cut_text
from runners.model.masking import without
from runners.model.spec import Hook
from runners.model.text import format_count
from runners.state.background_writer import BackgroundWriter
from stages.python_call import as_text

PATIENCE = 30.0
"""How many seconds a run waits for its hooks after it has ended and released its pipeline."""
ROOM = 100
"""How many events wait for a hook at most."""

log = logging.getLogger("wherry")


class HookFailed(Exception):
    """A hook failed. The message says why."""


class HookRunner:
    """The hooks of a run."""

    def __init__(
        self, hooks: Sequence[Hook], secrets: Mapping[str, str], *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._threads = [_HookThread(hook, secrets, sleep) for hook in hooks]
        self._secrets = secrets

    def notify(self, facts: Mapping[str, JSON]) -> None:
        """Call all hooks for this event. It never waits."""
        for thread in self._threads:
            if thread.hook.wants(facts):
                thread.writer.put(facts)

    def await_hooks(self, name: str, patience: float | None = None) -> None:
        """Wait a little for unfinished hooks, and log failed ones."""
        until = time.monotonic() + (PATIENCE if patience is None else patience)
        for at, thread in enumerate(self._threads):
            hook = f"hooks[{at}] ({thread.hook.kind})"
            if not thread.writer.flush(max(0.0, until - time.monotonic())):
                log.warning("%s: %s has not finished, and the run does not wait for it any longer.", name, hook)
            lost = thread.lost + thread.writer.dropped
            if lost:
                why = thread.why or without(self._secrets, thread.writer.error)
                log.warning("%s: %s failed %s: %s", name, hook, format_count(lost, "time", "times"), why)


class _HookThread:
    """Calls one hook in a separate thread, and tries again after a failure."""

    def __init__(self, hook: Hook, secrets: Mapping[str, str], sleep: Callable[[float], None]) -> None:
        self.hook = hook
        self.writer: BackgroundWriter[Mapping[str, JSON]] = BackgroundWriter(self._notify_all, room=ROOM)
        self.lost = 0
        """How many calls of the hook failed."""
        self.why = ""
        self._secrets = secrets
        self._sleep = sleep

    def _notify_all(self, items: Sequence[Mapping[str, JSON]]) -> None:
        for facts in items:
            why = self._try_hook(facts)
            if why:
                self.lost, self.why = self.lost + 1, without(self._secrets, why)

    def _try_hook(self, facts: Mapping[str, JSON]) -> str:
        """Call the hook. Return why it failed; empty if it succeeded."""
        why = ""
        for attempt in range(self.hook.attempts):
            if attempt:
                self._sleep(parse_seconds(self.hook.wait) * 2 ** (attempt - 1))
            try:
                _call_hook(self.hook, facts)
            except HookFailed as error:
                why = str(error)
            except (Exception, SystemExit) as error:  # noqa: BLE001 -- the edge of the thread, which calls a user's function
                why = f"{type(error).__name__}: {as_text(error)}"
            else:
                return ""
        return why


def _call_hook(hook: Hook, facts: Mapping[str, JSON]) -> None:
    if hook.python is not None:
        load_function(hook.python)(json.loads(json.dumps(facts)))
    elif hook.webhook is not None:
        _post(hook.webhook, facts, parse_seconds(hook.timeout))
    else:
        _start(hook.words, facts, parse_seconds(hook.timeout))


def _post(address: str, facts: Mapping[str, JSON], timeout: float) -> None:
    """Send the facts to this address only. A redirect is refused."""
    import urllib.error
    import urllib.request

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    headers = {"Content-Type": "application/json", "User-Agent": "wherry"}
    request = urllib.request.Request(address, json.dumps(facts).encode(), headers, method="POST")  # noqa: S310
    try:
        with urllib.request.build_opener(NoRedirects).open(request, timeout=timeout):
            pass
    except urllib.error.HTTPError as error:
        error.close()
        raise HookFailed(f"it answered {error.code}") from error
    except Exception as error:  # the text of any error may have the address, which is a secret
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise HookFailed(f"it gave no answer within {timeout:g} s") from error
        why = getattr(reason, "strerror", None) or type(reason).__name__
        raise HookFailed(f"it cannot be reached: {why}") from error


_VARIABLES = ("event", "pipeline", "run", "status", "reason", "batches", "read", "filtered", "nacked")


def _start(words: Sequence[str], facts: Mapping[str, JSON], timeout: float) -> None:
    variables = {f"WHERRY_{name.upper()}": str(facts[name]) for name in _VARIABLES if name in facts}
    variables["WHERRY_ERROR"] = str((facts.get("error") or {}).get("code", ""))
    try:
        ended = subprocess.run(
            words,
            input=json.dumps(facts),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout,
            env={**os.environ, **variables},
        )
    except subprocess.TimeoutExpired as error:
        raise HookFailed(f"it did not end within {timeout:g} s") from error
    except OSError as error:
        raise HookFailed(f"it cannot be started: {error.strerror}") from error
    if ended.returncode:
        last_line = (ended.stderr.strip().splitlines() or ["it wrote nothing"])[-1]
        raise HookFailed(f"it ended with exit code {ended.returncode}: {cut_text(last_line, 200)}")
