"""What Wherry had once, and what to use in its place."""

from __future__ import annotations

from collections.abc import Mapping

_COMPARE = "Compare both definitions on the same batches: wherry compare orders.yaml new.yaml"
_EDIT = (
    "Use `wherry dlq export FILE --id ID --to row.json`, edit the file, and use `wherry dlq replay --with row.json`."
)
_SAVE_CASE = "Save a case from the rows that wait: wherry preview orders.yaml --save-case orders.test.yaml"
_BY_VALUE = "Choose rows by a value with `where`, for example `get_json_object(original, '$.amount') = 'n/a'`."
_BY_COLUMN = "Use `--where \"message like '%amount%'\"`, or without Spark `--text amount`, which looks into rows too."
_BEFORE = "Use `--where \"nacked_at < timestamp '2026-01-31T06:00:00Z'\"`."
_CHOOSES = ("discard", "export", "replay", "show", "summary")
_WARM = "`wherry warm` keeps a Spark until it is interrupted, and prints the SPARK_REMOTE that commands need."

_METHODS = {
    "change_dlq": "refused.change_limits",
    "correct_dead_letters": "refused.correct",
    "count_waiting": "refused.count_waiting",
    "dead_letter_causes": "refused.causes",
    "dead_letters": "refused.list",
    "discard_dead_letters": "refused.discard",
    "dlq_settings": "refused.limits",
    "explain_dead_letter": "refused.explain",
    "export_dead_letters": "refused.export",
    "find_cut_replay": "refused.find_cut_replay",
    "find_run": "history.find",
    "lanes": "offsets.read",
    "merge_dead_letters": "refused.merge_fallback",
    "move_offsets": "offsets.move",
    "plan_offsets": "offsets.plan",
    "plan_replay": "refused.plan_replay",
    "preview_replay": "refused.preview_replay",
    "quality": "history.quality",
    "runs": "history.list",
}
"""Methods of `Pipeline`, and what does the same now."""

_FUNCTIONS = ("complete_verdicts", "take_clean", "take_live")
"""Methods of `Rows` that are functions now, and that a test of a stage may have called."""

GONE: Mapping[str, str] = {
    "Rows.enter": "Use `stages.rows.enter_stage(…)`.",
    "Rows.expression": "Use `rows.sql(…)`, or `F.expr(…)` inside a Column.",
    "WHERRY_WARM": _WARM,
    "batch.target": "Set the size of a batch by rows, bytes or files, for example  batch: {rows: 50000}",
    "choice.column": "Use `where=\"message like '%amount%'\"`.",
    "choice.values": _BY_VALUE,
    "dlq.weigh": "Limit the refused rows of a batch by their number, for example  limits: {rows: 5%}",
    "run.ways": "Remove it. Wherry takes the cheapest way for each batch, and `wherry validate --json` lists them.",
    "spark.keep_warm": _WARM,
    "wherry dlq config get": "Use `wherry dlq config FILE`.",
    "wherry dlq config set": "Use `wherry dlq config FILE NAME=VALUE`.",
    "wherry dlq edit": _EDIT,
    "wherry dlq import": "Use `wherry dlq replay FILE --with rows.csv`.",
    "wherry dlq search": "Use `wherry dlq show orders.yaml --text TEXT`.",
    "wherry dlq merge --from": "Copy the rows into a Delta table, give the table as `dlq.fallback`, and merge.",
    "wherry dlq suggest": "See the causes with examples by `wherry dlq summary`, and try a change by "
    "`wherry dlq replay --set`.",
    "wherry dlq summary --by": "Choose the time by `wherry dlq summary orders.yaml --since 2026-01-31`. "
    "`wherry runs` counts the refused rows of each run.",
    "wherry expect": "Write rules for the stage `expect` from the rows that `wherry preview` shows.",
    "wherry ls": "Use `wherry status --all`, or `wherry status FOLDER`.",
    "wherry offsets reset": "Use `wherry offsets FILE --to-beginning`.",
    "wherry offsets rewind": "Use `wherry offsets FILE` with --back N, --to TIME or --to-beginning.",
    "wherry offsets set": "Use `wherry offsets FILE --lane LANE --offset OFFSET`.",
    "wherry offsets show": "Use `wherry offsets FILE`.",
    "wherry run --canary": _COMPARE,
    "wherry run --record": _SAVE_CASE,
    "wherry run --record-rows": _SAVE_CASE,
    "wherry run --share": _COMPARE,
    "wherry runs list": "Use `wherry runs FILE`.",
    "wherry runs show": "Use `wherry runs FILE RUN`, or `wherry runs FILE last`.",
    "wherry schedule --example": "Copy a setup for cron, systemd or Airflow from the page "
    "runners/docs/howto/schedule.md.",
    "wherry warm start": _WARM,
    "wherry warm status": _WARM,
    "wherry warm stop": _WARM,
    **{f"Pipeline.{name}": f"Use `pipeline.{instead}(…)`." for name, instead in _METHODS.items()},
    **{f"Rows.{name}": f"Use `stages.rows.{name}(…)`." for name in _FUNCTIONS},
    **{f"wherry dlq {each} --column": _BY_COLUMN for each in _CHOOSES},
    **{f"wherry dlq {each} --until": _BEFORE for each in _CHOOSES},
}
"""One sentence for each thing that is gone, by its name.

Names are those of commands (`wherry dlq edit`), of their options (`wherry run --canary`) and of variables of the
environment. For options of definitions and of classes in Python it is the name with that of its holder, as the
definition writes it (`dlq.weigh`). For methods it is the name with that of the class (`Pipeline.lanes`). For kinds it
is the kind with its role (`origin.hdfs`).
"""


def describe_gone(name: str) -> str:
    """Return what to use in place of what had this name; empty if there was no such thing."""
    instead = GONE.get(name)
    return f"is gone from Wherry. {instead}" if instead else ""


def name_option(holder: str, option: str) -> str:
    """Return the name of an option for `GONE`. A holder is a path in a definition, or the name of a class."""
    inner = holder.rpartition(".")[2].partition("[")[0].lower()
    return f"{inner.removesuffix('options').removesuffix('spec')}.{option}"
