"""What a run is doing now: the task of each thread, since when, where in the code, and the work of Spark.

A run records each task in a dictionary. It does the rest only for a request, or in a background thread if it takes
long.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import signal
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from origins.batch import JSON, Json
from origins.spark_private import list_frames
from runners.model.clock import Clock
from runners.model.tasks import (
    AskDestinations,
    CheckRefusals,
    CountSpan,
    Deliver,
    Explain,
    Outcome,
    Prepare,
    ShowEmptyBatch,
    Task,
    WriteGroup,
    WriteStraight,
    list_batches,
)
from runners.model.text import describe_thread, describe_work
from runners.running.stop import handle_signals
from runners.state.background_writer import BackgroundWriter

EVERY = 5.0
"""The seconds after which a run first stores its activity, and between later times."""
_PATIENCE = 1.0
"""The seconds that an ending run waits for a file that is still being written."""
_ROOT = Path(__file__).resolve().parents[2]
_CODE = tuple(f"{_ROOT / folder}{os.sep}" for folder in ("origins", "stages", "destinations", "runners"))
_DOING: Mapping[type, str] = {
    WriteStraight: "writing a batch straight to its destination",
    WriteGroup: "writing batches of several lanes together",
    Prepare: "passing a batch through the stages",
    AskDestinations: "asking the destinations for a batch",
    CountSpan: "counting the rows of a batch",
    Explain: "fetching refused rows of a batch",
    CheckRefusals: "checking a batch against the destinations",
    ShowEmptyBatch: "showing an empty batch",
}
_LIVE: weakref.WeakSet[RunActivity] = weakref.WeakSet()
"""The runs of this process."""
log = logging.getLogger("wherry")


@dataclass(eq=False)
class RunActivity:
    """The current tasks of one run's threads. Other code sees them while this context is entered."""

    pipeline: str
    run: str
    folder: Path | None = None
    """The folder for the stored activity, or None if the state has no folder."""
    count_work: Callable[[], Mapping[str, int] | None] = lambda: None
    """Returns the active `jobs` and `tasks` of the run in Spark, or None if they are unknown. May block."""
    list_runs: Callable[[], Collection[str]] = tuple
    """Returns the runs that own the pipeline now."""
    clock: Clock = field(default_factory=Clock)
    _tasks: dict[int, tuple[Task, float]] = field(default_factory=dict)
    """The task of each thread, with the moment at which it began."""

    def __post_init__(self) -> None:
        self._looked = self.clock.elapsed()
        self._stored = False
        self._ended = False
        self._writer: BackgroundWriter[float] = BackgroundWriter(self._write, room=1)

    def __enter__(self) -> RunActivity:
        _LIVE.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _LIVE.discard(self)
        self._ended = True
        if self._stored and self.folder is not None:
            self._writer.flush(_PATIENCE)
            with contextlib.suppress(OSError):
                _get_file(self.folder, self.run).unlink(missing_ok=True)

    def watch(self, process: Callable[[Task], Outcome]) -> Callable[[Task], Outcome]:
        """Return the same function, which records each task while it works on it."""

        def process_and_note(task: Task) -> Outcome:
            thread = threading.get_ident()
            self._tasks[thread] = (task, self.clock.elapsed())
            try:
                return process(task)
            finally:
                del self._tasks[thread]

        return process_and_note

    def describe(self) -> dict[str, JSON]:
        """Return `pipeline`, `run`, `process`, `at`, `threads` (the slowest first) and `spark`. Does not ask Spark."""
        now, frames = self.clock.elapsed(), list_frames()
        tasks = sorted(dict(self._tasks).items(), key=lambda item: item[1][1])
        return {
            "pipeline": self.pipeline,
            "run": self.run,
            "process": os.getpid(),
            "at": self.clock.now().isoformat(timespec="milliseconds"),
            "threads": [
                {**_describe_task(task), "seconds": round(now - began, 1), "place": find_place(frames.get(thread))}
                for thread, (task, began) in tasks
            ],
            "spark": None,
        }

    def store(self) -> None:
        """Have the activity stored in the background, unless that was done moments ago. Returns at once."""
        now = self.clock.elapsed()
        if self.folder is None or now - self._looked < EVERY or not (self._tasks or self._stored):
            return
        self._looked = now
        self._writer.put(now)

    def flush(self) -> None:
        """Wait until the pending activity is stored."""
        self._writer.flush(_PATIENCE)

    def _write(self, moments: Sequence[float]) -> None:
        """Store the activity without Spark's work first, because the run may be waiting for Spark."""
        assert self.folder is not None
        first, self._stored = not self._stored, True
        if first:
            sweep_activities(self.folder, self.list_runs())
        facts = self.describe()
        self._put(facts)
        work = self.count_work()
        if work is not None:
            self._put({**facts, "spark": dict(work)})

    def _put(self, facts: Mapping[str, JSON]) -> None:
        if self.folder is not None and not self._ended:
            write_activity(self.folder, self.run, facts)


def write_activity(folder: Path, run: str, facts: Mapping[str, Json]) -> None:
    """Replace the run's earlier facts with these in one atomic step."""
    folder.mkdir(exist_ok=True, mode=0o700)
    new = folder / f".{run}"
    new.write_text(json.dumps(facts), encoding="utf-8")
    os.replace(new, _get_file(folder, run))


def read_activities(folder: Path, runs: Collection[str]) -> Mapping[str, Mapping[str, Json]]:
    """Return the facts of these runs. A run without facts that this version can read is left out."""
    found = {}
    for run in runs:
        try:
            facts = json.loads(_get_file(folder, run).read_text(encoding="utf-8"))
            datetime.fromisoformat(facts["at"])
            if all(each.keys() >= keys for each, keys in _list_parts(facts)):
                found[run] = facts
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue
    return found


def _list_parts(facts: Any) -> Iterator[tuple[Any, set[str]]]:
    """Yield the parts of the facts that are shown, each with the keys that it needs."""
    for thread in facts["threads"]:
        yield thread, {"doing", "batches", "rows", "seconds", "place"}
        yield from ((batch, {"lane", "number"}) for batch in thread["batches"])
    if facts["spark"] is not None:
        yield facts["spark"], {"jobs", "tasks", "done", "left"}


def sweep_activities(folder: Path, runs: Collection[str]) -> None:
    """Remove the files of all other runs, which were killed."""
    for file in folder.glob("*.json"):
        if file.stem not in runs:
            file.unlink(missing_ok=True)


def _get_file(folder: Path, run: str) -> Path:
    return folder / f"{run}.json"


def _describe_task(task: Task) -> dict[str, JSON]:
    batches = list_batches(task)
    doing = f"delivering a batch to {', '.join(task.names)}" if isinstance(task, Deliver) else _DOING[type(task)]
    decision = getattr(task, "decision", None)
    return {
        "doing": doing,
        "batches": [{"lane": each.lane, "number": each.number, "label": each.span.label} for each in batches],
        "rows": decision.counts.read if decision is not None else None,
    }


def find_place(frame: FrameType | None) -> str:
    """Return the line of Wherry's code at this frame or its nearest caller. Empty if no caller is Wherry's code."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_CODE) and name != __file__:
            return f"{os.path.relpath(name, _ROOT)}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return ""


@contextlib.contextmanager
def log_on_signal() -> Iterator[None]:
    """Log what the runs of this process are doing on each SIGUSR1, until the context ends. It changes nothing.

    Only the main thread can listen, and only on a system with this signal. The handler passes the request to a waiting
    thread, because a handler may interrupt any call.
    """
    number = getattr(signal, "SIGUSR1", None)
    if number is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def answer() -> None:
        while asked.get() is not None:
            try:
                _log_activities()
            except Exception as error:  # noqa: BLE001 -- the edge of the thread: an error here must not end the run
                _log(f"what the runs are doing is unknown: {type(error).__name__}: {error}")

    def ask(number: int, frame: FrameType | None) -> None:
        asked.put(number)

    thread = threading.Thread(target=answer, name="wherry-activity", daemon=True)
    thread.start()
    try:
        with handle_signals(ask, [number]):
            yield
    finally:
        asked.put(None)


def _log_activities() -> None:
    """Log a line for each thread at work, and then one for Spark, because asking Spark may block."""
    live = list(_LIVE)
    main = find_place(list_frames().get(threading.main_thread().ident or 0))
    if not live:
        _log("no run is open", main)
    for activity in live:
        facts = activity.describe()
        for thread in facts["threads"]:
            _log(f"{activity.pipeline}: {describe_thread(thread)}", pipeline=activity.pipeline, **thread)
        if not facts["threads"]:
            _log(f"{activity.pipeline}: no batch is in flight", main, pipeline=activity.pipeline)
        work = activity.count_work()
        if work is not None:
            _log(f"{activity.pipeline}: {describe_work(work)}", pipeline=activity.pipeline, spark=dict(work))


def _log(message: str, main: str = "", **facts: JSON) -> None:
    where = f"; the main thread is at {main}" if main else ""
    log.info("%s%s", message, where, extra={"facts": {"event": "activity", **facts}})
