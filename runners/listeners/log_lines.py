"""A run's log lines: text for people, or JSON for programs."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone

import click

from origins.batch import JSON
from runners.listeners.run_progress import describe_stop
from runners.listeners.standard_error import JsonStream, end_json_stream, flush
from runners.model.events import BatchSettled, Event, Noticed, RunEnded, RunStarted, RunStopping
from runners.model.masking import without
from runners.model.text import escape_controls, paint_error

log = logging.getLogger("wherry")


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object: `at`, `level`, `message`, and the record's facts."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        fields = {"at": at, "level": record.levelname.lower(), "message": record.getMessage()}
        return json.dumps({**fields, **getattr(record, "facts", {})}, ensure_ascii=False, default=str)


def configure_logs(log_format: str) -> None:
    """Make log lines `text` or `json` from now on. With `json`, everything on standard error is JSON."""
    for handler in log.handlers:
        handler.setFormatter(JsonLines() if log_format == "json" else None)
    end_json_stream()
    if log_format == "json":
        sys.stderr = JsonStream(sys.stderr)


def are_logs_json() -> bool:
    """Whether log lines are JSON now."""
    return any(isinstance(handler.formatter, JsonLines) for handler in log.handlers)


def complain(message: str, **facts: JSON) -> None:
    """Print on standard error why something ended, in the form of the log lines."""
    if are_logs_json():
        log.error(message, extra={"facts": facts})
    else:
        flush()
        refusal = facts.get("code", "REFUSED") in ("REFUSED", "OWNED")
        click.echo(paint_error(escape_controls(message), refusal=refusal), err=True)


class LogLines:
    """A listener that writes log lines: every event as JSON, or the important events as text."""

    def __init__(
        self,
        log_format: str,
        *,
        secrets: Mapping[str, str] | None = None,
        pipeline: str = "",
        shown: set[str] | None = None,
    ) -> None:
        self.json = log_format == "json"
        self.secrets = secrets or {}
        self.pipeline, self.run = pipeline, ""
        """The names for every line, as soon as they are known."""
        self.shown = set() if shown is None else shown
        """The notices that a person has already seen. Text lines show each once, and add it here."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.pipeline, self.run = event.pipeline, event.run
        event = _mask_event(event, self.secrets)
        line = self._format_line(event)
        if line:
            whose = {"pipeline": self.pipeline, "run": self.run}
            facts = {**make_facts(event), **{name: value for name, value in whose.items() if value}}
            log.info("%s", line, extra={"facts": facts})

    def _format_line(self, event: Event) -> str:
        if isinstance(event, RunStarted):
            return f"{event.pipeline}: run {event.run} begins"
        if isinstance(event, Noticed):
            return self._format_notice(event)
        if isinstance(event, RunStopping):
            return f"stopping: {describe_stop(event)}"
        return _name_event(event) if self.json else ""

    def _format_notice(self, event: Noticed) -> str:
        line = f"{event.origin}: {event.message}"
        if self.json:
            return line
        if self.shown & {line, event.message}:
            return ""
        self.shown.add(line)
        return line


def _mask_event(event: Event, secrets: Mapping[str, str]) -> Event:
    if isinstance(event, Noticed):
        return replace(event, message=without(secrets, event.message))
    if isinstance(event, RunStopping | RunEnded):
        return replace(event, reason=without(secrets, event.reason))
    return event


def make_facts(event: Event) -> Mapping[str, JSON]:
    """Return what a program gets to know of an event. `event` is its name, such as `batch_settled`."""
    facts: dict[str, JSON] = {"event": _name_event(event)}
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
        counts = {name: getattr(event.counts, name) for name in ("read", "nacked", "delivered")}
        facts.update(counts, owed=list(event.owed), seconds=dict(event.seconds))
    return facts


def _name_event(event: Event) -> str:
    """Return the event's name: `batch_settled` for `BatchSettled`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(event).__name__).lower()
