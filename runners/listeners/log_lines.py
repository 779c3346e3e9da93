"""What a run has to say, as lines of standard error: text for people, or JSON for programs."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone

import click

from origins.batch import JSON
from runners.clock import Clock
from runners.definitions.secrets import without
from runners.events import BatchSettled, Event, Noticed, RunEnded, RunStarted, RunStopping
from runners.listeners.standard_error import begin_json_stream, end_json_stream
from runners.printable import escape_controls

log = logging.getLogger("wherry")
SELDOM = 10.0
"""So many seconds lie between two lines of progress at least."""


class JsonLines(logging.Formatter):
    """A record as one JSON object: `at`, `level`, `message`, and the facts that came with it."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        said = {"at": at, "level": record.levelname.lower(), "message": record.getMessage()}
        return json.dumps({**said, **getattr(record, "facts", {})}, ensure_ascii=False, default=str)


def speak(log_format: str) -> None:
    """From now on log lines are `text` or `json`, and with `json` whatever else is said on standard error."""
    for handler in log.handlers:
        handler.setFormatter(JsonLines() if log_format == "json" else None)
    end_json_stream()
    if log_format == "json":
        begin_json_stream()


def complain(message: str, **facts: JSON) -> None:
    """Say on standard error why something ended, in the form in which all else is said there."""
    if any(isinstance(handler.formatter, JsonLines) for handler in log.handlers):
        log.error(message, extra={"facts": facts})
    else:
        click.echo(escape_controls(message), err=True)


class LogLines:
    """A listener that says what happens in log lines: all of it as JSON, the gist of it as text."""

    def __init__(
        self,
        log_format: str,
        *,
        secrets: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        pipeline: str = "",
    ) -> None:
        self.json = log_format == "json"
        self.secrets = secrets or {}
        self.clock = clock or Clock()
        self.pipeline, self.run = pipeline, ""
        """What stands in every line, as soon as it is known."""
        self.batches = self.rows = self.nacked = 0
        self._said = self.clock.elapsed()

    def __call__(self, event: Event) -> None:
        if isinstance(event, BatchSettled) and not event.owed:
            self.batches += 1
            self.rows += event.counts["read"]
            self.nacked += event.counts["nacked"]
        if isinstance(event, RunStarted):
            self.pipeline, self.run = event.pipeline, event.run
        event = _mask_event(event, self.secrets)
        said = self._line(event)
        if said:
            whose = {"pipeline": self.pipeline, "run": self.run}
            facts = {**_facts(event), **{name: value for name, value in whose.items() if value}}
            log.info("%s", said, extra={"facts": facts})

    def _line(self, event: Event) -> str:
        if isinstance(event, RunStarted):
            return f"{event.pipeline}: run {event.run} begins"
        if isinstance(event, Noticed):
            return f"{event.origin}: {event.message}"
        if isinstance(event, RunStopping):
            return f"stopping: {told(event)}"
        if self.json:
            return _name(event)
        if isinstance(event, BatchSettled) and self.clock.elapsed() - self._said >= SELDOM:
            self._said = self.clock.elapsed()
            batches = "1 batch" if self.batches == 1 else f"{self.batches:,} batches"
            return f"{batches}, {self.rows:,} {'row' if self.rows == 1 else 'rows'}, {self.nacked:,} refused so far"
        return ""


def _mask_event(event: Event, secrets: Mapping[str, str]) -> Event:
    """The same, and no secret in its free text."""
    if isinstance(event, Noticed):
        return replace(event, message=without(secrets, event.message))
    if isinstance(event, RunStopping | RunEnded):
        return replace(event, reason=without(secrets, event.reason))
    return event


def told(stopping: RunStopping) -> str:
    """Why a run stops; where that is a signal, also what a second one does."""
    return stopping.reason + ("; once more cancels what is in flight" if stopping.reason.startswith("signal ") else "")


def _facts(event: Event) -> Mapping[str, JSON]:
    facts: dict[str, JSON] = {"event": _name(event)}
    if isinstance(event, RunStarted):
        facts.update(pipeline=event.pipeline, run=event.run)
    elif isinstance(event, RunStopping | RunEnded):
        facts.update(reason=event.reason)
    elif not isinstance(event, Noticed):
        batch = event.batch
        facts.update(pipeline=batch.pipeline, run=batch.run)
        facts.update(lane=batch.lane, number=batch.number, batch=batch.plan, of=batch.span.label)
    if isinstance(event, RunEnded):
        facts.update(status=event.status)
    if isinstance(event, BatchSettled):
        counts = {key: event.counts[key] for key in ("read", "nacked", "delivered")}
        facts.update(counts, owed=list(event.owed), seconds=dict(event.seconds))
    return facts


def _name(event: Event) -> str:
    """`BatchSettled` is `batch_settled`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()
