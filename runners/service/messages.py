"""What callers ask and what the service answers, as types. REST, gRPC and MCP use the same.

The names of fields are those that commands print with `--json`. A field of the type `Any` has JSON of an origin, of a
row or of a report; in gRPC it is the text of the JSON. New fields come last, because their place is their number there.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from runners.service.operation import Ask, AskPipeline, Reply

Limit = Annotated[int, Meta(ge=1, le=1_000)]
Text = Annotated[str, Meta(max_length=1_000)]
DefinitionYaml = Annotated[str, Meta(max_length=100_000)]
"""A definition from the network. A longer one would keep a thread busy for seconds."""
Reason = Annotated[str, Meta(min_length=1, max_length=1_000, pattern=r"\S")]


class Problem(Reply, frozen=True, kw_only=True):
    """Why something was not done, as RFC 9457 describes it, with Wherry's code and what to do."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str = ""


class LastRun(Reply, frozen=True, kw_only=True):
    """How the last run of a pipeline ended."""

    run: str
    status: str
    reason: str = ""
    at: str | None = None
    batches: int | None = None
    read: int | None = None
    filtered: int | None = None
    nacked: int | None = None
    error: Any = None
    snapshot: Any = None
    """What a failed run was doing."""


class PipelineEntry(Reply, frozen=True, kw_only=True):
    """A pipeline in the list of pipelines."""

    pipeline: str
    file: str
    reads: list[str]
    """The places that it reads."""
    writes: list[str]
    """The places that it writes."""
    after: list[str]
    """The pipelines whose tables it reads."""
    schedule: str | None = None
    state: str | None = None
    """`never_run`, `running`, `paused`, `idle`, or how the last run ended. Null if only Spark knows it."""
    last_run: LastRun | None = None
    waiting: dict[str, int] | None = None
    """How many files and versions of tables wait. Null if only Spark knows it."""
    refused: int | None = None
    """How many refused rows wait in the DLQ. Null if only Spark knows it."""
    held: str | None = None
    """Why the schedule begins no run of it. Null if it does."""
    due: str | None = None
    """When the schedule begins the next run."""


class PipelineList(Reply, frozen=True, kw_only=True):
    """The pipelines of the folder that the caller may see."""

    pipelines: list[PipelineEntry]
    broken: dict[str, str]
    """What is wrong with each file that cannot be used."""


class ListPipelines(Ask, frozen=True, kw_only=True):
    """Which pipelines are there?"""


class PipelineStatus(Reply, frozen=True, kw_only=True):
    """The state of a pipeline, as `wherry status --json` prints it, and its definition."""

    pipeline: str
    state: str
    owner: Any = None
    stopping: str = ""
    forced: bool = False
    paused: Any = None
    lanes: Any
    open: list[Any]
    removed: list[Any]
    dlq: Any
    last_run: LastRun | None = None
    first: str = ""
    """What to change before the next step."""
    next: str
    """The command for the next step."""
    hash: str
    definition: Any
    """The definition with its defaults left out. Secrets are references."""
    differs: bool = False
    """Whether a run uses an older definition."""
    owners: list[Any] | None = None
    """The runs that share the lanes. Null if one run has them all."""
    left_out: Any = None
    """By origin, the columns that a written schema leaves out."""
    file: str = ""
    """The file of the definition, as the commands in `next` name it."""


class GetPipeline(AskPipeline, frozen=True, kw_only=True):
    """What is the state of a pipeline?"""


class ListRuns(AskPipeline, frozen=True, kw_only=True):
    """Which runs did a pipeline have?"""

    status: Literal["", "running", "succeeded", "failed", "stopped", "killed"] = ""
    since: str = ""
    """Only runs since this moment, such as 2026-01-31T06:00 (UTC)."""
    limit: Limit = 20
    cursor: Text = ""
    """The cursor of the answer before, for the runs after it, also those that were archived."""


class Run(Reply, frozen=True, kw_only=True):
    """A run."""

    run: str
    pipeline: str
    status: str
    reason: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    seconds: float | None = None
    batches: int | None = None
    read: int | None = None
    filtered: int | None = None
    nacked: int | None = None
    error: Any = None
    definition: str | None = None
    host: str | None = None
    report: Any = None
    """What the run reported. Only in the answer about one run."""


class RunList(Reply, frozen=True, kw_only=True):
    """Runs, the newest first."""

    runs: list[Run]
    cursor: str = ""
    """For the next answer. Empty if there are no more."""


class GetRun(AskPipeline, frozen=True, kw_only=True):
    """What did a run report?"""

    run: str
    """Its id, the beginning of it, or `last`."""


class StartRun(AskPipeline, frozen=True, kw_only=True):
    """Begin a run."""

    reason: Reason
    parameters: dict[str, Text] = field(default_factory=dict)
    """The values of `${NAME}` in the definition, for the names that the server allows."""
    definition: DefinitionYaml = ""
    """A definition for this run alone, which is not kept. It needs the right to admin, like a stored one."""


class Arrival(Reply, frozen=True, kw_only=True):
    """A run of this pipeline begins soon, or follows the run that works."""

    pipeline: str


class StopRun(AskPipeline, frozen=True, kw_only=True):
    """Stop the run of a pipeline."""

    reason: Reason
    force: bool = False
    """Cancel the batches in flight. The next run recovers them."""
    within: str = ""
    """Force it after this time, such as 30s."""


class Stopped(Reply, frozen=True, kw_only=True):
    """Whether there was a run to stop."""

    pipeline: str
    asked: bool


class ResumePipeline(AskPipeline, frozen=True, kw_only=True):
    """Let runs begin again, after a limit of the DLQ paused the pipeline."""

    reason: Reason


class Resumed(Reply, frozen=True, kw_only=True):
    """Whether the pipeline was paused."""

    pipeline: str
    resumed: bool


class ListTasks(Ask, frozen=True, kw_only=True):
    """What does the server do, and what did it do?"""

    pipeline: str = ""


class AskTask(Ask, frozen=True, kw_only=True):
    """A question about one task."""

    task: str


class GetTask(AskTask, frozen=True, kw_only=True):
    """How far is a task?"""

    wait: Annotated[float, Meta(ge=0, le=30)] = 0.0
    """For how many seconds to wait for its end."""


class CancelTask(AskTask, frozen=True, kw_only=True):
    """Cancel a task."""

    reason: Reason


class Task(Reply, frozen=True, kw_only=True):
    """A long action. The server forgets it when it ends; what it did is in the history of runs and in the ledger."""

    task: str
    operation: str
    pipeline: str
    state: Literal["waiting", "working", "succeeded", "failed", "stopped"]
    by: str
    reason: str
    began_at: str
    ended_at: str | None = None
    doing: str = ""
    run: str | None = None
    """The run that it is, if it is one."""
    result: Any = None
    """What it found or did, once it has succeeded."""
    problem: Problem | None = None
    """Why it failed."""


class TaskList(Reply, frozen=True, kw_only=True):
    """Tasks, the newest first."""

    tasks: list[Task]


class GetOffsets(AskPipeline, frozen=True, kw_only=True):
    """How far was each lane read?"""


class LaneList(Reply, frozen=True, kw_only=True):
    """How far each lane was read, and which batches are open."""

    pipeline: str
    lanes: Any
    open: list[Any]


class MoveOffsets(AskPipeline, frozen=True, kw_only=True):
    """Move the offsets of a pipeline that does not run. Give one of `lane` with `offset`, `back`, `to`, `beginning`."""

    reason: Reason
    lane: str = ""
    offset: Any = None
    back: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Go back this many batches in every lane."""
    to: str = ""
    """Go back to this moment in every lane, such as 2026-01-31T06:00 (UTC)."""
    beginning: bool = False
    """Go back to the beginning."""
    preview: bool = False
    """Only answer what the move would do."""
    expected: Any = None
    """The `lanes` of the preview that a person was shown. If the move would differ now, nothing is moved."""


class OffsetMove(Reply, frozen=True, kw_only=True):
    """What a move of offsets does, or would do."""

    lanes: Any
    destinations: dict[str, str]
    """By destination, what happens to rows that it already has."""
    moved: bool


class AskRefused(AskPipeline, frozen=True, kw_only=True):
    """A question about refused rows. The rows meet all conditions that are given."""

    ids: list[Text] = field(default_factory=list)
    code: Text = ""
    stage: Text = ""
    """The stage or the destination that refused them."""
    file: Text = ""
    """The file of the rows: its name, its path, or a pattern such as `2026-*.csv`."""
    contains: Text = ""
    """A text in their message or in their values."""
    since: str = ""
    """Only rows that were refused since this moment, such as 2026-01-31T06:00 (UTC)."""
    until: str = ""
    """Only rows that were refused before this moment."""


class ListRefusedRows(AskRefused, frozen=True, kw_only=True):
    """Which rows were refused?"""

    limit: Limit = 20
    waiting: bool = False
    """Only rows that were not replayed or discarded."""


class RefusedRow(Reply, frozen=True, kw_only=True):
    """A refused row. The values of protected columns are masked."""

    id: str
    lane: str
    number: int
    run: str
    code: str
    message: str
    stage: str | None = None
    destination: str | None = None
    delivered_to: list[str] = field(default_factory=list)
    row: Any = None
    """The row before the stage that refused it."""
    original: Any = None
    """The row as it was read."""
    part: str | None = None
    """The file that it is from."""
    nacked_at: str
    replayed: bool = False
    discarded: bool = False
    replays: str | None = None
    """The refused row that this one is another try of."""
    first: str | None = None
    """The first of all these tries, if the DLQ still has it."""


class RefusedRowList(Reply, frozen=True, kw_only=True):
    """Refused rows, the newest last."""

    rows: list[RefusedRow]


class Cause(Reply, frozen=True, kw_only=True):
    """Why rows were refused, and how many."""

    code: str
    stage: str | None = None
    destination: str | None = None
    rows: int
    waiting: int
    first: str
    last: str
    example: Any
    forms: list[Any]
    """The same rows by column and by the form of their values."""


class CauseList(Reply, frozen=True, kw_only=True):
    """Causes, that with the most waiting rows first."""

    causes: list[Cause]


class ListCauses(AskRefused, frozen=True, kw_only=True):
    """Why were rows refused?"""


class ExplainRow(AskPipeline, frozen=True, kw_only=True):
    """What became of one refused row before and after each stage of today? A task answers, because Spark tries it."""

    id: str


class ReplayRows(AskRefused, frozen=True, kw_only=True):
    """Process refused rows again."""

    reason: Reason
    preview: bool = False
    """Only try the rows, and write nothing. The task's result says what would become of them."""
    plan: bool = False
    """Only count the rows that it would process, and those that it would leave out."""


class DiscardRows(AskRefused, frozen=True, kw_only=True):
    """Close refused rows, so that no replay takes them."""

    reason: Reason
    expected: Annotated[int, Meta(ge=0)] | None = None
    """The number of rows that a person was shown. If more wait now, nothing is discarded."""
    preview: bool = False
    """Only answer how many rows it would discard, and their digest."""
    expected_digest: Text = ""
    """The digest of the rows that a person was shown. If others wait now, nothing is discarded."""


class Discarded(Reply, frozen=True, kw_only=True):
    """How many rows were discarded."""

    discarded: int
    found: int = 0
    """How many rows it would discard, for a preview."""
    digest: str = ""
    """The hash of the ids of these rows, for a preview."""


class GetDlq(AskPipeline, frozen=True, kw_only=True):
    """What are the limits of the DLQ?"""


class DlqSettings(Reply, frozen=True, kw_only=True):
    """The limits of the DLQ for the next batch."""

    window: int
    threshold: int
    limits: Any
    changed: list[str] = field(default_factory=list)
    """Those that were changed since the run began."""


class ChangeDlq(AskPipeline, frozen=True, kw_only=True):
    """Change the limits of the DLQ of the active run."""

    reason: Reason
    window: Annotated[int, Meta(ge=0)] | None = None
    threshold: Annotated[int, Meta(ge=0)] | None = None
    rows: str | None = None
    """The limit on the share of refused rows, such as `5% pause`. An empty text removes it."""


class Quality(Reply, frozen=True, kw_only=True):
    """Which share of rows or batches passed each rule, run by run."""

    rules: list[Any]


class GetQuality(AskPipeline, frozen=True, kw_only=True):
    """How did the rules fare?"""

    limit: Limit = 8


class RunAudit(AskPipeline, frozen=True, kw_only=True):
    """Prove that each row is where it should be. A task answers, because it reads the destinations."""


class RunRepair(AskPipeline, frozen=True, kw_only=True):
    """Repair what an audit finds, where no guess is needed."""

    reason: Reason
    accept: list[str] = field(default_factory=list)
    """The ids of findings that are right as they are."""
    preview: bool = False
    """Only answer what there is to repair."""


class RunBackfill(AskPipeline, frozen=True, kw_only=True):
    """Deliver old batches to destinations that lack them."""

    reason: Reason
    start: str = ""
    """The number of the first batch in its lane, or the moment when it was loaded."""
    end: str = ""
    """The last batch, in the same form."""
    only: str = ""
    """Deliver only to this destination."""
    lane: str = ""
    again: bool = False
    """Deliver also what a destination has."""
    preview: bool = False
    """Only answer what it would do."""


class RunRedo(AskPipeline, frozen=True, kw_only=True):
    """Read an edited file again, and replace its old rows."""

    reason: Reason
    file: str
    preview: bool = False
    """Only answer what it would do."""


class GetSchedule(Ask, frozen=True, kw_only=True):
    """When do runs begin by themselves?"""

    days: Annotated[int, Meta(ge=1, le=31)] = 7


class ScheduledPipeline(Reply, frozen=True, kw_only=True):
    """The times of one pipeline."""

    pipeline: str
    file: str | None = None
    when: str
    """The times in words."""
    due: list[str]
    """The next moments, with the offset of the schedule's time zone."""
    more: bool = False
    """Whether there are more moments in these days than are shown."""
    held: str | None = None
    """Why no run begins. Null if runs begin."""
    next: list[str] = field(default_factory=list)
    """The next three moments in UTC, however far they are."""
    group: str | None = None
    """The group in which only so many pipelines run at a time."""


class Schedule(Reply, frozen=True, kw_only=True):
    """The schedule of the folder."""

    now: str
    scheduled: list[ScheduledPipeline]
    by_hand: list[str]
    """The pipelines without a schedule."""
    files: dict[str, str] = field(default_factory=dict)
    """The files of the pipelines without a schedule."""
    broken: dict[str, str] = field(default_factory=dict)
    """What is wrong with each file that cannot be used."""


class HoldSchedule(AskPipeline, frozen=True, kw_only=True):
    """Let the schedule begin no run of a pipeline, or let it begin runs again."""

    reason: Reason
    held: bool


class Held(Reply, frozen=True, kw_only=True):
    """Whether the schedule begins runs of the pipeline."""

    pipeline: str
    held: bool


class WatchEvents(Ask, frozen=True, kw_only=True):
    """What happens now, in runs of this server?"""

    pipeline: str = ""


class Happening(Reply, frozen=True, kw_only=True):
    """Something that happened in a run or in the schedule of this server."""

    event: str
    """Its name, such as `batch_settled`. `still_here` comes if nothing happens, and `missed` if the reader is slow."""
    at: str
    pipeline: str = ""
    facts: Any = None


class GetCaller(Ask, frozen=True, kw_only=True):
    """What is the name of the caller, and which rights does it have?"""


class KnownCaller(Reply, frozen=True, kw_only=True):
    """The caller as the server knows it."""

    caller: str
    right: str
    """`read`, `operate` or `admin`. A higher right includes the lower ones."""
    needs: dict[str, str]
    """By operation, the right that it needs. Operations that every caller may ask are left out."""


class GetReadiness(Ask, frozen=True, kw_only=True):
    """Do runs begin?"""


class Readiness(Reply, frozen=True, kw_only=True):
    """Whether runs begin."""

    ready: bool
    version: str


class ValidateDefinition(AskPipeline, frozen=True, kw_only=True):
    """Could this be the definition of a pipeline?"""

    definition: DefinitionYaml
    """The text, which is YAML."""


class ValidDefinition(Reply, frozen=True, kw_only=True):
    """What a definition says. It is not kept."""

    pipeline: str
    hash: str
    """The hash that a run with it would have."""
    definition: Any
    """The definition with its defaults left out."""


class GetDefinition(AskPipeline, frozen=True, kw_only=True):
    """What is in the file of a pipeline?"""


class DefinitionText(Reply, frozen=True, kw_only=True):
    """The file of a pipeline."""

    pipeline: str
    file: str
    definition: str
    """The text, with references instead of the secrets that the server knows."""
    etag: str
    """The hash of the file. A change of the file names it."""


class PutDefinition(AskPipeline, frozen=True, kw_only=True):
    """Create or replace the definition of a pipeline."""

    definition: DefinitionYaml
    """The text, which is YAML."""
    etag: str = ""
    """The hash of the file that it replaces. Empty for a new file."""
    reason: Reason


class StoredDefinition(Reply, frozen=True, kw_only=True):
    """The definition as it is stored now. The schedule and the next run use it."""

    pipeline: str
    file: str
    etag: str
    replaced: bool


class DeleteDefinition(AskPipeline, frozen=True, kw_only=True):
    """Remove the definition of a pipeline. Its state and its tables stay."""

    etag: str
    """The hash of the file that it removes."""
    reason: Reason


class RemovedDefinition(Reply, frozen=True, kw_only=True):
    """The definition is gone, and the schedule begins no run of it."""

    pipeline: str
    file: str


class PlanChange(Ask, frozen=True, kw_only=True):
    """Plan a change, which a person has to approve."""

    operation: str
    """The name of an operation that changes something, such as `discard_rows`."""
    arguments: Any
    """What that operation is asked: its fields, as one JSON object."""


class Plan(Reply, frozen=True, kw_only=True):
    """A change that a person may approve. The server forgets it after some minutes."""

    plan: str
    operation: str
    pipeline: str
    arguments: Any
    digest: str
    """The hash of the operation and its arguments. An approval names it."""
    right: str
    """The right that the person needs."""
    by: str
    """The caller that planned it. Only this caller may carry it out."""
    expires_at: str
    state: Literal["waiting", "approved", "carried_out"]
    approved_by: str | None = None
    preview: Any = None
    """What the change would do. A task that finds it out, if that takes long. Null if there is no preview."""


class ListPlans(Ask, frozen=True, kw_only=True):
    """Which changes are planned?"""


class PlanList(Reply, frozen=True, kw_only=True):
    """Plans, the newest first."""

    plans: list[Plan]


class GetPlan(Ask, frozen=True, kw_only=True):
    """What would a plan change?"""

    plan: str


class ApprovePlan(Ask, frozen=True, kw_only=True):
    """Approve a plan."""

    plan: str
    digest: str
    """The digest of the plan that a person was shown."""


class CarryOutPlan(Ask, frozen=True, kw_only=True):
    """Do what a plan says."""

    plan: str


class CarriedOut(Reply, frozen=True, kw_only=True):
    """What the operation answered."""

    plan: str
    operation: str
    answer: Any


class Search(Ask, frozen=True, kw_only=True):
    """Where do these words occur, in runs, batches and refused rows?"""

    text: Text = ""
    """Words, or beginnings of words. All of them have to occur."""
    pipeline: str = ""
    kind: Literal["", "run", "batch", "row"] = ""
    status: Text = ""
    """The status of a run, `settled` for batches, or `refused` for rows."""
    since: str = ""
    """Only what began or happened since this moment, such as 2026-01-31T06:00 (UTC)."""
    until: str = ""
    """Only what began or happened before this moment."""
    limit: Limit = 20
    cursor: Text = ""
    """The cursor of the answer before, for what comes after it."""


class Hit(Reply, frozen=True, kw_only=True):
    """A run, a batch or a refused row. Secrets and values of protected columns are masked."""

    pipeline: str
    kind: Literal["run", "batch", "row"]
    name: str
    """The id of the run, of the batch or of the refused row."""
    run: str
    status: str
    at: str
    text: str


class HitList(Reply, frozen=True, kw_only=True):
    """What was found, the newest first."""

    hits: list[Hit]
    cursor: str = ""
    """For the next answer. Empty if this is all."""
    behind: str = ""
    """Why something new may be missing. Empty if nothing is."""
