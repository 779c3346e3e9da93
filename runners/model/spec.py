"""A pipeline as a value: its origins, stages and destinations, the options of its runs, and its retries."""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal
from urllib.parse import urlsplit

from destinations.destination import Destination
from destinations.dlq import Dlq
from origins.batch import JSON
from origins.capabilities import StandsForSeveral, get_only_lane
from origins.functions import check_function
from origins.origin import Origin
from origins.problems import refuse_unknown
from origins.protection import Protection
from origins.quantities import check_seconds, parse_seconds
from runners.model.error_kinds import classify
from runners.model.events import LimitExceeded
from runners.model.masking import without
from stages.stage import Stage


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """When a batch is full. The page of each origin says which of these limits it keeps."""

    rows: int | None = 100_000
    """How many rows a batch has at most."""
    bytes: str | None = field(default="1GiB", metadata={"like": "256MiB"})
    """How many bytes a batch has at most, as they are stored at the origin."""
    files: int | None = 1_000
    """How many files a batch has at most."""
    wait: str = field(default="0s", metadata={"like": "10s"})
    """With `--follow`: how long a batch that is not full waits for more rows, from its first row on."""


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class RetryOptions:
    """How Wherry retries a batch after an error that may pass by itself, such as a lost connection."""

    attempts: int = 7
    """How often Wherry retries the same batch. -1 is without end, and 0 is never."""
    wait: str = field(default="1s", metadata={"like": "10s"})
    """How long the first wait is. Each later wait is twice as long."""
    most: str = field(default="5m", metadata={"like": "1m"})
    """How long one wait is at most."""
    within: str = field(default="1h", metadata={"like": "1d"})
    """How long after the first error Wherry still retries."""
    also: Sequence[str] = ()
    """More words of errors that may pass by themselves."""

    def pause(self, error: Exception, *, tried: int, since: float, dice: random.Random) -> float | None:
        """Return how many seconds to wait before the next retry, or None if there is none.

        `tried` is the number of retries so far, and `since` the seconds since the first error. Up to a fifth of the
        wait is random, so that many pipelines do not retry at the same moment.
        """
        if (tried >= self.attempts and self.attempts != FOR_EVER) or not classify(error, self.also).transient:
            return None
        full = min(parse_seconds(self.most), parse_seconds(self.wait) * 2.0 ** min(tried, 60))
        pause = full * (1 - 0.2 * dice.random())
        return pause if since + pause <= parse_seconds(self.within) else None


GROUP_NAME = re.compile(r"[a-z][a-z0-9_-]{0,99}")
"""The name of a group. Without capitals, two spellings never make two groups of one."""
FOR_EVER = -1
NEVER = RetryOptions(attempts=0)

WAYS = ("grouped", "straight", "apart", "written")
"""The ways that a batch may take, in the order in which they are asked."""


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run works on batches."""

    runners: int | None = None
    """How many batches a run works on at the same time. The default is the lower of lanes and cores."""
    max_in_flight: int | None = None
    """How many batches may be planned and not yet settled. The default is the number of lanes."""
    batch: BatchOptions = BatchOptions()
    """When a batch is full."""
    retry: RetryOptions = RetryOptions()
    """How Wherry retries a batch after an error that may pass by itself."""
    drain: str = field(default="0s", metadata={"like": "5m"})
    """How long a stop waits for batches in flight before it cancels them. 0s waits without end."""
    poll: str = field(default="1s", metadata={"like": "10s"})
    """With `--follow`: how often Wherry looks for new rows. It looks less often where looking takes long."""
    idle: str = field(default="0s", metadata={"like": "60s"})
    """With `--follow`: after how long without rows Wherry processes an empty batch. 0s is never."""
    ownership: Literal["on", "off"] = "on"
    """Whether a lease keeps other runs of this pipeline away. Use `off` only if two runs can never overlap."""
    assignment: Literal["single", "round_robin", "local_only"] = "single"
    """`single`: one run has all lanes. `round_robin`: several runs share them, and take over the lanes of a run that
    ended. `local_only`: those lanes wait for `--take-over`."""
    lease: str = field(default="60s", metadata={"like": "30s"})
    """How long a run on another host may be silent before another run takes its pipeline over."""
    time_zone: str = "UTC"
    """The time zone of the Spark session, for expressions with dates and times."""
    history: str = field(default="90d", metadata={"like": "30d"})
    """How long a run stays in the run history. 0s keeps no history."""
    snapshot: int = 20
    """How many rows of a failed batch Wherry keeps beside the error, at most 20."""
    group: str | None = field(default=None, metadata={"like": "warehouse"})
    """The group of pipelines of which `wherry schedule` and `wherry serve` run one at a time, or `--group NAME=N`."""


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class ScheduleOptions:
    """When `wherry schedule` runs the pipeline. Give one of `cron`, `every` and `after`."""

    cron: str | None = field(default=None, metadata={"like": '"30 2 * * *"'})
    """Times as in crontab: minute, hour, day of month, month, weekday; or a word such as `@daily`."""
    every: str | None = field(default=None, metadata={"like": "5m"})
    """The time between two runs, counted from the beginning of 1970 in UTC."""
    after: str | None = field(default=None, metadata={"like": "orders"})
    """The name of another pipeline in the same folder. This one runs after each success of that one."""
    time_zone: str = "UTC"
    """The time zone of `cron`."""
    on_overlap: Literal["skip", "queue"] = "skip"
    """What happens to a run that is due while the run before it still works."""
    catch_up: Literal["none", "once", "all"] = "once"
    """What happens to runs that were due while the scheduler was off or paused. `all` is at most the last thousand."""
    jitter: str = field(default="0s", metadata={"like": "30s"})
    """The most by which a run begins later, at random, so that not all pipelines begin at once."""


MASTER = "spark.master"
"""Spark's own setting for the machine or the cluster that it works on."""


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class SparkOptions:
    """Settings of a Spark session that Wherry starts. Wherry uses an existing session as it is."""

    master: str | None = field(default=None, metadata={"like": "spark://spark.example.com:7077"})
    """The cluster that Spark works on: `spark://HOST:PORT`, `yarn` or `k8s://…`. The default is this machine."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Configuration of Spark by key, for example `spark.driver.memory`."""
    packages: Sequence[str] = ()
    """Maven coordinates of further JARs."""

    def __post_init__(self) -> None:
        named = self.conf.get(MASTER)
        if self.master is not None and named not in (None, self.master):
            raise ValueError(f"master: {self.master!r} and conf: {MASTER}: {named!r} differ; remove one of them")

    @property
    def settings(self) -> Mapping[str, str]:
        """All settings except the JARs, as Spark's configuration."""
        return {**({MASTER: self.master} if self.master is not None else {}), **self.conf}


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class SchemaState:
    """A state in tables of a catalog's schema: `<name>_ledger`, `<name>_dlq`."""

    schema: str
    """The schema's name, for example `main.wherry`."""
    volume: str | None = None
    """The volume for rows that wait for delivery, for example `main.wherry.rows`. Without it, they are tables."""


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class PipelineSpec:
    """A pipeline: where rows come from, which stages they pass, and where they go. The same in YAML and in Python."""

    name: str
    """The pipeline's name. State, reports and commits carry it."""
    origin: Origin | None = None
    """Where rows come from. Give either this or `origins`."""
    origins: Sequence[Origin] = ()
    """Several origins, each with a name. Their rows pass the same stages and go to the same destinations."""
    destinations: Sequence[Destination]
    """Where rows go. Each destination gets every row that passes the stages."""
    stages: Sequence[Stage] = ()
    """What happens to the rows on their way, in this order."""
    delivery: Literal["after_all", "after_any"] = "after_all"
    """Whether a batch is settled when all destinations have it, or when the first one has it."""
    dlq: Dlq = Dlq()
    """Where refused rows go, and how many of them stop the run."""
    keep_filtered: str = field(default="0s", metadata={"like": "30d"})
    """How long Wherry stores the rows that stages filter, so that `wherry find` shows them. 0s stores none."""
    protect: Sequence[str] = ()
    """Columns whose values are never shown. Wherry masks them in errors, logs, previews and reports."""
    state: str | SchemaState | None = field(default=None, metadata={"path": True})
    """The folder, URL or schema of the state. The default is `.wherry/<name>` beside the definition."""
    run_options: RunOptions = RunOptions()
    """How a run works on batches. In a definition the word is `run`."""
    spark: SparkOptions = SparkOptions()
    """Settings of a Spark session that Wherry starts."""
    hooks: Sequence[Hook] = ()
    """What Wherry calls when a run begins, succeeds, fails or is stopped."""
    schedule: ScheduleOptions | None = None
    """When the scheduler runs the pipeline. By default only a person or another program starts it."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False, metadata={"hidden": True})
    """The secrets in the definition, each with the reference that is shown and stored instead."""
    job: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False, metadata={"hidden": True})
    """The ids of the job in which this process runs, as `id` and `run`. The ledger and the labels have them."""

    @property
    def protection(self) -> Protection:
        """What masks the protected columns of a row that is shown."""
        return Protection(tuple(self.protect))

    def mask_row(self, row: JSON, *kin: JSON) -> JSON:
        """Return the row without protected values and secrets. `kin` are other versions of the same row."""
        return without(self.secrets, self.protection.mask_row(row, *kin))

    def mask_nack(self, nack: Mapping[str, JSON]) -> dict[str, JSON]:
        """Return a refused row without protected values and secrets in its `row`, its `original` and its `message`."""
        masked = self.protection.mask_nack(nack)
        texts = {name: masked[name] for name in ("message", "row", "original") if name in masked}
        return {**masked, **without(self.secrets, texts)}

    @property
    def keeps_filtered(self) -> bool:
        """Whether the rows that stages filter are stored."""
        return parse_seconds(self.keep_filtered) > 0

    @property
    def given_origins(self) -> Sequence[Origin]:
        """The one origin, or all of them, as they were given."""
        return self.origins if self.origin is None else (self.origin,)

    @cached_property
    def every_origin(self) -> Sequence[Origin]:
        """The origins as they are read. An origin of several tables becomes one origin for each table.

        If there are several origins, the name of each such table begins with the name of its origin.
        """
        found: list[Origin] = []
        for given in self.given_origins:
            prefix = "" if self.origin is not None else f"{given.name}/"
            found += given.each(prefix) if isinstance(given, StandsForSeveral) else [given]
        return found

    @cached_property
    def origins_by_name(self) -> Mapping[str, Origin]:
        """Every origin by its name. A single origin without a name is called `origin`."""
        return {origin.name or "origin": origin for origin in self.every_origin}

    @cached_property
    def every_destination(self) -> Sequence[Destination]:
        """The destinations as they are written.

        A destination with `{lane}` in its place becomes one destination for each lane that is a table.
        """
        lanes = [origin.name or "" for origin in self.every_origin if get_only_lane(origin)]
        given = [(each, lanes if each.by_lane else ("",)) for each in self.destinations]
        return [each.of_lane(lane) if lane else each for each, own in given for lane in own]

    def lanes_of(self, origin: Origin) -> Mapping[str, str]:
        """Return the names that the origin gives its lanes, by the names that these have in the pipeline."""
        if lane := get_only_lane(origin):
            return {origin.name or lane: lane}
        prefix = "" if self.origin is not None else f"{origin.name}/"
        return {prefix + lane: lane for lane in origin.lane_names()}

    def find_origin_of(self, lane: str) -> Origin | None:
        """Return the origin to which a lane of the pipeline belongs or belonged; None if it is gone."""
        return next((each for each in self.every_origin if self.owns(each, lane)), None)

    def owns(self, origin: Origin, lane: str) -> bool:
        """Whether a lane of the pipeline belongs or belonged to this origin."""
        if get_only_lane(origin):
            return lane == origin.name
        return "/" not in lane if self.origin is not None else lane.startswith(f"{origin.name}/")


Moment = Literal["start", "success", "failure", "stop", "refused", "limit"]
MOMENTS: Mapping[str, str] = {"succeeded": "success", "failed": "failure", "stopped": "stop"}
"""The moment at which a run ends, by its status."""
REFUSED, LIMIT = "refused", "limit"
"""The moments beside the end itself: a run that refused rows ended, or a batch exceeds a DLQ limit with `notify`."""


@refuse_unknown
@dataclass(frozen=True, kw_only=True)
class Hook:
    """A call at the beginning or end of a run: one of `command`, `webhook` and `python`. Each gets the same JSON."""

    on: Moment | Sequence[Moment] = ("failure",)
    """When Wherry calls it: at the start of a run, after it succeeded, failed or was stopped, or after any end of a run
    that refused rows. `limit` is when a batch exceeds a limit of the DLQ with `notify`."""
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
        wrong = [moment for moment in self.moments if moment not in ("start", *MOMENTS.values(), REFUSED, LIMIT)]
        if wrong or not self.moments:
            got = ", ".join(wrong) or "nothing"
            raise ValueError(f"on: expected start, success, failure, stop, refused or limit, got {got}")
        if self.webhook and not self._is_address:
            raise ValueError("webhook: expected an address that begins with https:// or http://")
        if self.python is not None:
            check_function("python", self.python)
        if self.attempts < 1:
            raise ValueError(f"attempts: expected at least 1, got {self.attempts}")
        for name in ("wait", "timeout"):
            check_seconds(name, getattr(self, name))
        try:
            self.words  # noqa: B018  (it is parsed to see whether it can be)
        except ValueError as error:
            raise ValueError(f"command: {error}") from error

    @property
    def _is_address(self) -> bool:
        """Whether the text can be an address. A secret that is given only by its name counts as one."""
        parts = urlsplit(self.webhook or "")
        return (parts.scheme in ("http", "https") and bool(parts.hostname)) or "${secret:" in (self.webhook or "")

    @property
    def moments(self) -> Sequence[str]:
        """The moments at which the hook is called."""
        return (self.on,) if isinstance(self.on, str) else tuple(self.on)

    def wants(self, facts: Mapping[str, JSON]) -> bool:
        """Whether the hook is called with these facts."""
        return facts["event"] in self.moments or (REFUSED in self.moments and bool(facts.get("nacked")))

    @property
    def words(self) -> Sequence[str]:
        """The words of the hook's command."""
        return shlex.split(self.command) if isinstance(self.command, str) else tuple(self.command or ())

    @property
    def kind(self) -> str:
        """The kind of hook: `command`, `webhook` or `python`."""
        return next(name for name in ("command", "webhook", "python") if getattr(self, name))


def make_start_facts(pipeline: str, run: str, at: str) -> dict[str, JSON]:
    """Return the facts at the beginning of a run."""
    return {"event": "start", "pipeline": pipeline, "run": run, "at": at, "status": "running"}


def make_limit_facts(event: LimitExceeded, at: str) -> dict[str, JSON]:
    """Return the facts when a batch exceeds a limit."""
    batch = event.batch
    named = {name: getattr(event, name) for name in ("limit", "allowed", "share", "rows", "message")}
    run = {"event": LIMIT, "pipeline": batch.pipeline, "run": batch.run, "at": at, "status": "running"}
    return {**run, "lane": batch.lane, "number": batch.number, "of": batch.span.label, **named}


def make_end_facts(report: Mapping[str, JSON], at: str) -> dict[str, JSON]:
    """Return the facts of a run that has ended: its report without the parts that only Wherry's programs read."""
    left_out = ("lanes", "stages", "spent", "snapshot")
    kept = {name: value for name, value in report.items() if name not in left_out}
    return {"event": MOMENTS[report["status"]], "at": at, **kept}
