"""A service with prepared answers, so that a page can be shown in any state without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec

from origins.batch import Batch, Span
from runners.listeners.metrics import Metrics
from runners.model.clock import Clock
from runners.model.errors import Refusal
from runners.model.events import BatchSettled, Event, RunStarted
from runners.model.planned_batch import SettledCounts
from runners.service import messages
from runners.service.access.guard import Guard
from runners.service.access.tokens import Tokens, make_own_token
from runners.service.happenings import Happenings
from runners.service.operation import Ask, Caller, Forbidden, NotFound, Operation, Right
from runners.service.operations import OPERATIONS
from runners.service.problems import describe_problem
from runners.service.rest import make_app
from runners.service.service import Service
from runners.service.serving import ServerOptions, answer_over_http

RUN = "03a64aefe2c74b17992ec85eea0a7183"
ROW = "57fe01412f7a4e78bb4baa39b3698016/771"
BEGAN, ENDED = "2026-11-30T01:05:25.001+00:00", "2026-11-30T01:06:05.583+00:00"
HINT = "Make room on the disk, and start a run."
ORDER = {"id": 19771, "email": "Bjorn@Example.fr", "amount": "12,50", "country": "FR"}
DEFINITION = {
    "name": "orders",
    "origin": {"files": {"path": "landing/orders/*.json", "format": "json"}},
    "stages": [
        {"cast": {"amount": "decimal(10,2)"}},
        {"require": {"positive_amount": "amount > 0"}},
        {"filter": "email is not null"},
    ],
    "destinations": [
        {"delta": {"path": "tables/orders"}, "name": "orders"},
        {"delta": {"path": "tables/large"}, "name": "large", "stages": [{"filter": "amount > 1000"}]},
    ],
    "dlq": {"window": 1000, "threshold": 100},
}
TWO_ORIGINS = {
    "name": "orders",
    "origins": [
        {"files": {"path": "landing/*.json"}, "name": "shop", "stages": [{"cast": {"amount": "decimal(10,2)"}}]},
        {"delta": {"path": "tables/till"}, "name": "till", "stages": [{"rename": {"number": "id", "price": "amount"}}]},
    ],
    "stages": [{"require": {"positive_amount": "amount > 0"}}],
    "destinations": [{"delta": {"path": "tables/orders"}, "name": "orders"}],
}
REPORT = {
    "status": "succeeded",
    "batches": 20,
    "read": 20_000,
    "filtered": 294,
    "nacked": 151,
    "balanced": True,
    "causes": [
        {
            "code": "CAST",
            "stage": "cast",
            "problem": "amount is not a decimal(10,2)",
            "rows": 83,
            "form": "9,9",
            "example": "'12,50'",
        },
        {"code": "PARSE", "stage": "origin", "problem": "this line is not a JSON object", "rows": 14, "example": ""},
    ],
    "destinations": {
        "orders": {"read": 20_000, "delivered": 19_555, "filtered": 294, "nacked": 151, "owed": 0},
        "large": {"read": 20_000, "delivered": 1_204, "filtered": 18_645, "nacked": 151, "owed": 0},
    },
    "stages": [
        {"stage": "cast", "in": 19_986, "out": 19_903, "filtered": 0, "nacked": 83},
        {"stage": "require", "in": 19_903, "out": 19_849, "filtered": 0, "nacked": 54},
        {"stage": "filter", "in": 19_849, "out": 19_555, "filtered": 294, "nacked": 0},
        {"stage": "large/filter", "in": 19_555, "out": 1_204, "filtered": 18_351, "nacked": 0},
    ],
    "spent": {"plan": 0.049, "read": 25.894, "write": 7.664, "dlq": 0.3, "ledger": 0.514},
    "timeline": {
        str(lane): [
            {
                "start": start + lane * 0.7,
                "end": start + 6 + lane * 0.5,
                "batches": 1,
                "spent": {"plan": 0.1, "read": 3.2, "write": 2.1, "dlq": 0.2, "ledger": 0.2},
            }
            for start in (0.5, 8.0, 15.5, 24.0, 31.0)
        ]
        for lane in range(4)
    },
    "quality": [{"stage": "require", "rule": "positive_amount", "share": 0.9973, "batches": 20, "failed": 0}],
    "notices": [],
    "lanes": {},
    "error": None,
}
ERROR: dict[str, Any] = {
    "class": "DestinationError",
    "code": "DESTINATION",
    "message": "The table tables/orders cannot be written: no space is left on the device.\n  lane 0, batch 412",
    "hint": HINT,
    "stage": None,
    "lane": "0",
}


def make_last_run(**more: Any) -> dict[str, Any]:
    """Return how a run ended."""
    facts = {"run": RUN, "status": "succeeded", "reason": "nothing left to do", "at": ENDED, "batches": 20}
    return {**facts, "read": 20_000, "filtered": 294, "nacked": 151, **more}


def make_entry(name: str, **more: Any) -> dict[str, Any]:
    """Return a pipeline of the list. It needs no person by default."""
    return {
        "pipeline": name,
        "file": f"{name}.yaml",
        "reads": [f"landing/{name}/*.json"],
        "writes": [f"tables/{name}"],
        "after": [],
        "schedule": "every day at 02:30 Europe/Berlin",
        "state": "idle",
        "last_run": make_last_run(),
        "waiting": {"files": 0},
        "refused": 0,
        "held": None,
        "due": "2026-12-01T01:30:00+00:00",
        **more,
    }


ENTRIES = [
    make_entry("orders", refused=151, waiting={"files": 3}),
    make_entry("payments", state="failed", last_run=make_last_run(status="failed", error=ERROR)),
    make_entry("tickets", state="paused", refused=1_204, last_run=make_last_run(status="failed", reason="5% pause")),
    make_entry("visits", state="killed", last_run=make_last_run(status="killed", reason="process 4711 ended")),
    make_entry("stock", state="running", last_run=None, waiting={"files": 12}),
    make_entry("prices", held="the supplier sends wrong prices"),
    make_entry(
        "daily", after=["orders", "payments"], reads=["tables/orders", "tables/payments"], schedule=None, due=None
    ),
    make_entry("report", after=["daily"], reads=["tables/daily"], state="never_run", last_run=None),
    make_entry("catalog", state=None, last_run=None, waiting=None, refused=None),
]


def make_cause(code: str, stage: str, waiting: int, message: str, forms: list[Any]) -> dict[str, Any]:
    """Return a cause with one example."""
    example = {"id": ROW, "message": message, "row": ORDER, "stage": stage}
    times = {"first": BEGAN, "last": ENDED}
    return {
        "code": code,
        "stage": stage,
        "rows": waiting,
        "waiting": waiting,
        "example": example,
        "forms": forms,
        **times,
    }


def make_form(form: str, example: str, number: int) -> dict[str, Any]:
    """Return a form of values."""
    files = {"files": 14, "first_files": ["orders-0001.json"]}
    return {"column": "amount", "form": form, "example": example, "rows": number, "waiting": number, **files}


WRONG = "column amount: '12,50' is not a decimal(10,2)"
REFUSED = {
    "id": ROW,
    "lane": "0",
    "number": 20,
    "run": RUN,
    "code": "CAST",
    "message": WRONG,
    "stage": "cast",
    "row": ORDER,
    "original": ORDER,
    "part": "orders-0020.json",
    "nacked_at": ENDED,
}
TRIED = {
    **REFUSED,
    "alike": 82,
    "today": {"row": ORDER, "outcome": "wanted", "stage": "", "destinations": ["orders"], "filtered_for": {}},
    "steps": [
        {"stage": "", "outcome": "kept", "row": ORDER},
        {"stage": "cast", "outcome": "kept", "row": {**ORDER, "amount": 12.5}},
        {"stage": "with_columns", "outcome": "kept", "row": {**ORDER, "amount": 12.5, "email": "bjorn@example.fr"}},
    ],
    "why_not": None,
}
PREVIEW = {"read": 83, "passing": 61, "refused": 22, "filtered": 0, "causes": [], "destinations": {}, "left": {}}
AUDIT = {"balanced": True, "read": 20_000, "filtered": 294, "nacked": 151, "problems": []}
FINDINGS = [
    {
        "id": "ROWS_MISSING:orders:0:412::",
        "code": "ROWS_MISSING",
        "message": "batch 412 of lane 0 has 0 of its 1,000 rows in orders",
        "repair": "Type:  wherry repair orders.yaml",
        "safe": True,
    },
    {
        "id": "ROWS_DOUBLED:orders:0:77::",
        "code": "ROWS_DOUBLED",
        "message": "batch 77 of lane 0 is in orders twice",
        "repair": "Remove one of both commits by hand, or accept it.",
        "safe": False,
    },
]
REPAIRED = {"done": ["batch 412 of lane 0, orders: 1,000 rows put back"], "failed": [], "accepted": [], "audit": AUDIT}
RESULTS = {
    "explain_row": TRIED,
    "run_audit": AUDIT,
    "start_run": REPORT,
    "replay_rows": REPORT,
    "run_repair": REPAIRED,
    "run_backfill": REPORT,
    "run_redo": REPORT,
}
MOVE = {"from": {"file": "orders-0016.json"}, "to": {"file": "orders-0020.json"}, "batches": 4, "rows": 4_000}
PREVIEWS: dict[str, Any] = {
    "replay_rows": PREVIEW,
    "run_repair": {"damage": "", "audit": {**AUDIT, "balanced": False, "problems": FINDINGS}},
    "run_backfill": {
        "lanes": {"0": MOVE},
        "destinations": {"large": "gets the rows; rows that it has already are left out"},
    },
    "run_redo": {
        "file": "monday.json",
        "read": 1_000,
        "destinations": {
            "orders": {"leaving": 998, "condition": "file = 'monday.json'"},
            "large": {"leaving": None, "condition": None},
        },
        "letters": 2,
        "unsure": [],
    },
}
"""What the preview of each operation finds."""
DISCARD = {
    "pipeline": "orders",
    "ids": [],
    "code": "CAST",
    "stage": "cast",
    "contains": "",
    "reason": "the supplier sends these rows again",
    "expected": 83,
    "expected_digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "preview": False,
}
OLD_TEXT = "name: orders\norigin: {files: {path: in}}\nrun: {runners: 2}\n"


def make_plan(number: int, operation: str, arguments: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return a plan of an agent, which waits until the end of this century."""
    return {
        "plan": f"{number:032x}",
        "operation": operation,
        "pipeline": arguments["pipeline"],
        "arguments": arguments,
        "digest": f"digest-{number}",
        "right": "operate",
        "by": "claude",
        "expires_at": "2099-11-30T01:21:05+00:00",
        "state": "waiting",
        "preview": None,
        **more,
    }


PLANS = [
    make_plan(1, "discard_rows", DISCARD, preview={"discarded": 0, "found": 83, "digest": "9f86"}),
    make_plan(
        2,
        "put_definition",
        {"pipeline": "orders", "reason": "more runners", "definition": OLD_TEXT.replace("2", "4"), "etag": "b45962f9"},
        right="admin",
    ),
    make_plan(
        3,
        "run_repair",
        {"pipeline": "payments", "reason": "rows are missing", "accept": [], "preview": False},
        right="admin",
        preview={"task": f"{77:032x}"},
    ),
    make_plan(
        4,
        "hold_schedule",
        {"pipeline": "prices", "reason": "wrong prices", "held": True},
        state="approved",
        approved_by="anna",
    ),
    make_plan(
        5,
        "stop_run",
        {"pipeline": "stock", "reason": "it is slow", "force": False, "within": ""},
        state="carried_out",
        approved_by="anna",
    ),
]


def make_run(number: int, **more: Any) -> dict[str, Any]:
    """Return a run of the history."""
    status = {3: "failed", 7: "stopped"}.get(number, "succeeded")
    return {
        "run": RUN if number == 0 else f"{number:032x}",
        "pipeline": "orders",
        "status": status,
        "reason": "nothing left to do",
        "started_at": f"2026-11-{30 - number % 28:02}T01:05:25+00:00",
        "ended_at": f"2026-11-{30 - number % 28:02}T01:06:05+00:00",
        "seconds": 40.6 + number % 9,
        "batches": 20,
        "read": 20_000 + number,
        "filtered": 294,
        "nacked": 151 if number % 4 == 0 else 0,
        "error": ERROR["message"] if status == "failed" else None,
        "definition": "b45962f9f741ecf3",
        "host": "ship",
        **more,
    }


SCHEDULED = [
    {
        "pipeline": "orders",
        "when": "every day at 02:30 Europe/Berlin",
        "due": [f"2026-10-{day}T02:30:00+0{2 if day < 25 else 1}:00" for day in range(24, 30)],
    },
    {
        "pipeline": "stock",
        "when": "every hour",
        "due": [f"2026-10-{day}T{hour:02}:00:00+00:00" for day in range(23, 30) for hour in range(24)],
    },
    {"pipeline": "prices", "when": "every day at 06:00 UTC", "due": [], "held": "the supplier sends wrong prices"},
]


@dataclass
class PreparedService:
    """Answers what a test prepared, and notes each change."""

    entries: list[dict[str, Any]] = field(default_factory=lambda: list(ENTRIES))
    broken: dict[str, str] = field(default_factory=dict)
    definition: Mapping[str, Any] = field(default_factory=lambda: DEFINITION)
    report: Mapping[str, Any] = field(default_factory=lambda: REPORT)
    runs: list[dict[str, Any]] = field(default_factory=lambda: [make_run(number) for number in range(10)])
    refused: list[dict[str, Any]] = field(default_factory=lambda: [REFUSED])
    scheduled: list[dict[str, Any]] = field(default_factory=lambda: list(SCHEDULED))
    problem: Exception | None = None
    """What each change raises, if anything."""
    unreadable: Exception | None = None
    """What each question about runs raises, if anything."""
    changes: list[tuple[str, dict[str, Any], str]] = field(default_factory=list)
    """The changes that were asked for: the operation, the question and the key."""
    happenings: Happenings = field(default_factory=lambda: Happenings(Clock()))
    metrics: Metrics = field(default_factory=lambda: Metrics(Clock()))
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    plans: list[dict[str, Any]] = field(default_factory=lambda: list(PLANS))
    right: Right = Right.ADMIN
    """What the owner of the token may do."""

    def __post_init__(self) -> None:
        task = self._make_task(f"{77:032x}", "run_repair", {"pipeline": "payments", "preview": True})
        self.planned_tasks = {task["task"]: {**task, **self._end_task(task, {"preview": True})}}

    def answer(self, operation: Operation, caller: Caller, ask: Ask, key: str = "") -> Any:
        """Answer from what was prepared."""
        if operation.streams:
            return self.happenings.watch(caller)
        words = msgspec.to_builtins(ask)
        if self.right < operation.right:
            raise Forbidden("The token has not this right.")
        if operation.changes:
            self.changes.append((operation.name, words, key))
            if self.problem is not None:
                raise self.problem
        answer = (
            self._start_task(operation.name, words) if operation.answer is messages.Task and operation.changes else None
        )
        if answer is None:
            answer = getattr(self, operation.name)(words)
        return msgspec.convert(answer, operation.answer)

    def _start_task(self, operation: str, words: dict[str, Any]) -> dict[str, Any]:
        task = self._make_task(f"{len(self.tasks) + 1:032x}", operation, words)
        self.tasks[task["task"]] = {**task, **self._end_task(task, words)}
        return task

    def _make_task(self, name: str, operation: str, words: Mapping[str, Any]) -> dict[str, Any]:
        task = {"task": name, "operation": operation, "pipeline": words.get("pipeline", "orders"), "by": "owner"}
        began = {"state": "working", "reason": words.get("reason", ""), "began_at": ENDED, "doing": "waiting for Spark"}
        return {**task, **began, "ended_at": None, "result": None}

    def _end_task(self, task: Mapping[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
        if task["operation"] == "cancel_task":
            problem = describe_problem(Refusal("It was stopped."))
            return {"state": "stopped", "ended_at": ENDED, "doing": "", "run": RUN, "problem": problem}
        result = (PREVIEWS if words.get("preview") else RESULTS).get(task["operation"])
        return {"state": "succeeded", "ended_at": ENDED, "doing": "", "run": RUN, "result": result}

    def _find(self, name: str) -> dict[str, Any]:
        found = next((each for each in self.entries if each["pipeline"] == name), None)
        if found is None:
            raise NotFound("There is no pipeline of this name.")
        return found

    def list_pipelines(self, words: Mapping[str, Any]) -> Any:
        return {"pipelines": self.entries, "broken": self.broken}

    def get_pipeline(self, words: Mapping[str, Any]) -> Any:
        entry = self._find(words["pipeline"])
        return {
            "pipeline": entry["pipeline"],
            "state": entry["state"] or "idle",
            "lanes": {},
            "open": [],
            "removed": [],
            "dlq": {"rows": entry["refused"], "unreplayed": entry["refused"], "fallback": 0},
            "last_run": entry["last_run"],
            "next": "wherry run orders.yaml",
            "hash": "b45962f9f741ecf3",
            "definition": self.definition,
            "paused": {"number": 9, "limit": "5% pause", "reason": "7% of the rows of batch 9 were refused"},
        }

    def list_runs(self, words: Mapping[str, Any]) -> Any:
        if self.unreadable is not None:
            raise self.unreadable
        wanted = [run for run in self.runs if words["status"] in ("", run["status"])]
        names = [run["run"] for run in wanted]
        begin = names.index(words["cursor"]) + 1 if words["cursor"] else 0
        end = begin + words["limit"]
        return {"runs": wanted[begin:end], "cursor": names[end - 1] if end < len(wanted) else ""}

    def get_run(self, words: Mapping[str, Any]) -> Any:
        run = (
            self.runs[0] if words["run"] == "last" else next(each for each in self.runs if each["run"] == words["run"])
        )
        return {**run, "report": {**self.report, "error": ERROR if run["status"] == "failed" else None}}

    def get_offsets(self, words: Mapping[str, Any]) -> Any:
        lane = {"offset": {"file": "orders-0020.json"}, "number": 20, "epoch": 2, "committed_at": ENDED}
        return {"pipeline": words["pipeline"], "lanes": {"0": lane}, "open": []}

    def get_dlq(self, words: Mapping[str, Any]) -> Any:
        return {"window": 1_000, "threshold": 100, "limits": {}}

    def change_dlq(self, words: Mapping[str, Any]) -> Any:
        return {"window": 1_000, "threshold": words["threshold"], "limits": {}, "changed": ["threshold"]}

    def list_causes(self, words: Mapping[str, Any]) -> Any:
        forms = [make_form("9,9", "'12,50'", 61), make_form("a/a", "'n/a'", 22)]
        causes = [
            make_cause("CAST", "cast", 83, self.refused[0]["message"], forms),
            make_cause("positive_amount", "require", 54, "positive_amount: amount > 0 is false", []),
            make_cause("PARSE", "origin", 14, "orders-0018.json: this line is not a JSON object", []),
        ]
        return {"causes": [each for each in causes if words["code"] in ("", each["code"])]}

    def list_refused_rows(self, words: Mapping[str, Any]) -> Any:
        return {"rows": self.refused}

    def get_quality(self, words: Mapping[str, Any]) -> Any:
        shares = [0.9991, 0.9988, 0.9993, 0.9402, 0.9985, 0.9973]
        runs = [
            {
                "run": f"{at:032x}",
                "started_at": f"2026-11-{20 + at}T01:05:25+00:00",
                "share": share,
                "batches": 20,
                "failed": 0,
            }
            for at, share in enumerate(shares)
        ]
        whole = [{**run, "share": 1.0} for run in runs]
        return {
            "rules": [
                {"stage": "require", "rule": "positive_amount", "runs": runs},
                {"stage": "expect", "rule": "expect_column_values_to_be_unique", "runs": whole},
            ]
        }

    def get_schedule(self, words: Mapping[str, Any]) -> Any:
        return {"now": "2026-10-23T08:00:00+00:00", "scheduled": self.scheduled, "by_hand": ["report"]}

    def search(self, words: Mapping[str, Any]) -> Any:
        row = {"kind": "row", "name": ROW, "status": "refused", "text": self.refused[0]["message"]}
        run = {"kind": "run", "name": RUN, "status": "failed", "text": "the amount of a file"}
        batch = {
            "kind": "batch",
            "name": "f00d" * 8,
            "status": "settled",
            "text": "batch 20 of lane 0: orders-0020.json",
        }
        hits = [
            each for each in (run, batch, row) if words["kind"] in ("", each["kind"]) and words["text"] in each["text"]
        ]
        some = hits[1:] if words["cursor"] else hits[:1] if len(hits) > 1 else hits
        cursor = "7" if len(some) < len(hits) and not words["cursor"] else ""
        behind = "The index is behind since 2026-11-30T08:00:00.000+00:00."
        return {
            "hits": [{"pipeline": "orders", "run": RUN, "at": ENDED, **each} for each in some],
            "cursor": cursor,
            "behind": behind,
        }

    def list_tasks(self, words: Mapping[str, Any]) -> Any:
        return {"tasks": [*reversed(self.tasks.values())]}

    def get_task(self, words: Mapping[str, Any]) -> Any:
        return (self.tasks | self.planned_tasks)[words["task"]]

    def get_caller(self, words: Mapping[str, Any]) -> Any:
        needs = {each.name: each.right.name.lower() for each in OPERATIONS if each.right > Right.READ}
        return {"caller": "anna", "right": self.right.name.lower(), "needs": needs}

    def list_plans(self, words: Mapping[str, Any]) -> Any:
        return {"plans": self.plans}

    def approve_plan(self, words: Mapping[str, Any]) -> Any:
        (at,) = (at for at, each in enumerate(self.plans) if each["plan"] == words["plan"])
        self.plans[at] = {**self.plans[at], "state": "approved", "approved_by": "anna"}
        return self.plans[at]

    def get_definition(self, words: Mapping[str, Any]) -> Any:
        return {"pipeline": words["pipeline"], "file": "orders.yaml", "definition": OLD_TEXT, "etag": "b45962f9"}

    def stop_run(self, words: Mapping[str, Any]) -> Any:
        return {"pipeline": words["pipeline"], "asked": True}

    def resume_pipeline(self, words: Mapping[str, Any]) -> Any:
        return {"pipeline": words["pipeline"], "resumed": True}

    def hold_schedule(self, words: Mapping[str, Any]) -> Any:
        return {"pipeline": words["pipeline"], "held": words["held"]}

    def discard_rows(self, words: Mapping[str, Any]) -> Any:
        return {"discarded": words["expected"]}

    def move_offsets(self, words: Mapping[str, Any]) -> Any:
        move = {"from": {"file": "orders-0020.json"}, "to": {"file": "orders-0017.json"}, "batches": 3, "rows": 3_000}
        what = "gets the rows again; rows that it has already will be there twice"
        return {"lanes": {"0": move}, "destinations": {"orders": what}, "moved": not words["preview"]}


def make_batches(number: int) -> Iterator[Event]:
    """Yield the events of a run with so many batches. Each has 1,000 rows, of which 3 were refused."""
    yield RunStarted(pipeline="stock", run=RUN)
    for batch in range(1, number + 1):
        span = Span(start=None, end=batch, label=f"stock-{batch}.json")
        place: dict[str, Any] = {
            "pipeline": "stock",
            "run": RUN,
            "origin": "o",
            "lane": "0",
            "plan": f"{batch}",
            "schema": "",
        }
        counts = SettledCounts(read=1_000, nacked=3, delivered={"orders": 950, "large": 20})
        yield BatchSettled(batch=Batch(**place, number=batch, span=span, time=Clock().now()), counts=counts)


@contextlib.contextmanager
def serve(service: PreparedService, folder: Path) -> Iterator[str]:
    """Serve it inside the block. Yield the address with a token."""
    tokens = Tokens(file=folder / "tokens.json", clock=Clock(), own=make_own_token())
    guard = Guard(tokens=tokens, clock=Clock())
    with answer_over_http(
        make_app(cast("Service", service), guard), ServerOptions(directory=folder, port=0)
    ) as address:
        try:
            yield f"{address}/#token={tokens.own}"
        finally:
            service.happenings.end()
