"""The settings of the DLQ of a pipeline that is being run: reading them, and changing them for the next batch."""

from __future__ import annotations

import dataclasses
import getpass
import socket
from collections.abc import Mapping

from destinations.dlq import Dlq
from origins.batch import JSON
from runners.errors import Refusal
from runners.journal import Journal
from runners.ledgers.entry import Entry
from runners.ledgers.ledger import Conflict
from runners.limits import changed
from runners.pipeline import Pipeline
from runners.place import Place, check_pipeline
from runners.session import obtain


def get(pipeline: Pipeline) -> dict[str, JSON]:
    """The settings that the next batch goes by, and which of them were changed since the run began."""
    state = _journal(pipeline).state
    return {**_settings(changed(pipeline.dlq, state.config)), "changed": sorted(state.config)}


def put(pipeline: Pipeline, settings: Mapping[str, str], *, reason: str) -> dict[str, JSON]:
    """Change settings of the run that is under way; what they are now.

    The run hears of it at its next entry in the ledger, and judges the next batch by it; the run after it goes by its
    definition again. A setting is `window`, `threshold`, or `limits.CODE`, which an empty value takes away.

    Raises `Refusal` where nobody runs the pipeline, and for a setting that cannot be.
    """
    if not reason.strip():
        raise Refusal("A change of settings needs a reason; it is kept in the ledger.", hint='--reason "…"')
    while True:
        journal = _journal(pipeline)
        state = journal.state
        if state.owner is None:
            raise Refusal(
                f"Nobody runs {pipeline.name}, so there is no run whose settings could be changed.",
                hint="For good: `dlq:` in the definition. For one run: wherry run FILE --set dlq.window=0",
            )
        now = _with(changed(pipeline.dlq, state.config), settings)
        body = {
            "dlq": {name: _settings(now)[name] for name in {name.partition(".")[0] for name in settings}},
            "who": f"{getpass.getuser()}@{socket.gethostname()}",
            "reason": reason,
        }
        try:
            journal.ledger.append([Entry(kind="config", epoch=state.epoch, body=body)], after=state.seq)
        except Conflict:
            continue
        return _settings(now)


def _with(dlq: Dlq, settings: Mapping[str, str]) -> Dlq:
    """The settings as they are typed, put in."""
    limits = dict(dlq.limits)
    numbers = {"window": dlq.window, "threshold": dlq.threshold}
    for name, value in settings.items():
        if name.startswith("limits.") and value:
            limits[name.removeprefix("limits.")] = value
        elif name.startswith("limits."):
            limits.pop(name.removeprefix("limits."), None)
        elif name in numbers:
            numbers[name] = _number(name, value)
        else:
            raise Refusal(f"There is no setting '{name}'; there are: window, threshold, limits.CODE.")
    try:
        return dataclasses.replace(dlq, window=numbers["window"], threshold=numbers["threshold"], limits=limits)
    except ValueError as error:
        raise Refusal(f"That cannot be: {error}.") from error


def _number(name: str, value: str) -> int:
    if not value.isdecimal():
        raise Refusal(f"{name}: expected a whole number, got {value!r}.")
    return int(value)


def _settings(dlq: Dlq) -> dict[str, JSON]:
    return {"window": dlq.window, "threshold": dlq.threshold, "limits": dict(dlq.limits)}


def _journal(pipeline: Pipeline) -> Journal:
    place = Place.of(pipeline)
    spark = obtain(pipeline.spark.conf, pipeline.spark.packages) if place.needs_spark else None
    journal = Journal(place.ledger(spark))
    check_pipeline(pipeline, place, journal.state)
    return journal
