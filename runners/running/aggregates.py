"""Find stages that combine several rows of a batch, by Spark's plan. Refuse them if the table would be wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from origins.lazy import DataFrame, SparkSession, T
from origins.names import HIDDEN
from origins.origin import Origin
from runners.model.errors import SplitAggregate
from runners.model.spec import PipelineSpec
from runners.ways.stage_chain import PlacedStage, StageChain, apply_chain, make_empty_rows
from stages.deduplicate import Deduplicate

ROWS = HIDDEN + "rows"
"""The name of a stage's input rows in the plan of that stage."""
_WORDS = {
    "Aggregate": "an aggregate",
    "Window": "a window function",
    "Distinct": "a DISTINCT",
    "Deduplicate": "a DISTINCT",
    "GlobalLimit": "a LIMIT",
    "LocalLimit": "a LIMIT",
    "Offset": "an OFFSET",
    "Tail": "a LIMIT",
    "Intersect": "an INTERSECT",
    "Except": "an EXCEPT",
}
"""The names of plan nodes that combine several rows. In Spark's plan a rollup, a cube and a pivot are aggregates."""
_KEEPS = {
    "LeftOuter": (True, False),
    "LeftSemi": (True, False),
    "LeftAnti": (True, False),
    "RightOuter": (False, True),
    "FullOuter": (True, True),
}
"""By type of join, whether it gives rows of the left and the right side that the other only selects or completes."""
_OF_GROUPS = re.compile(r"(?:Flat)?Map(?:Co)?Groups\w*")
_LINE = re.compile(r"((?:[: ] {2})*)([:+])- (\w+)(.*)")
_BEGINS, _ENDS = "== Analyzed Logical Plan ==", "== Optimized Logical Plan =="


@dataclass(frozen=True, kw_only=True)
class SplitReason:
    """Why rows that belong together may come in several batches, and how a person can change that."""

    why: str
    remedy: str


def list_splits(
    pipeline: PipelineSpec, origin: Origin, chain: StageChain, *, follow: bool = False, again: SplitReason | None = None
) -> Sequence[SplitReason]:
    """Return why the destinations of this origin may get several batches in a run. Empty if they surely get one."""
    destinations = [each for each in pipeline.every_destination if each.name in chain.branches]
    sharing = [
        each
        for each in pipeline.every_origin
        if any(destination.takes(pipeline.lanes_of(each)) for destination in destinations)
    ]
    lanes = sum(len(each.lane_names()) for each in sharing)
    found = [] if again is None else [again]
    if len(sharing) > 1:
        found.append(SplitReason(why=f"{len(sharing)} origins deliver to it", remedy="Use one origin."))
    elif lanes > 1:
        found.append(SplitReason(why=f"there are {lanes} lanes", remedy="Give the origin one lane."))
    several = [each for each in sharing if each.may_give_several()]
    found += [
        SplitReason(why=f"'{each.name}' may give several batches", remedy=_describe_remedy(each)) for each in several
    ]
    if follow and origin.batch != "whole":
        why = "with --follow, later rows form other batches"
        found.append(SplitReason(why=why, remedy="Run it without --follow, for example on a schedule."))
    return found


def _describe_remedy(origin: Origin) -> str:
    if origin.whole_by and origin.batch != "whole":
        return (
            f"Write `{origin.whole_by}` at the origin '{origin.name}'; then all waiting rows of its lane are one batch."
        )
    return (
        f"'{origin.name}' cannot make one batch of all waiting rows. Append its rows to a Delta table. Compute from "
        "that table in a second pipeline with `read: whole`."
    )


OF_A_BACKFILL = SplitReason(
    why="a backfill processes each old batch alone",
    remedy="Process all rows from the beginning:  wherry run FILE --from-beginning",
)
OF_A_REPLAY = SplitReason(
    why="a replay processes refused rows in batches of their own",
    remedy="Read the rows again from the origin; or remove this destination from the definition for the replay.",
)


def check_mixing(
    pipeline: PipelineSpec,
    spark: SparkSession,
    chains: Mapping[str, StageChain],
    schemas: Mapping[str, str],
    *,
    follow: bool = False,
    again: SplitReason | None = None,
    only: str | None = None,
) -> Mapping[str, Sequence[str]]:
    """Return warnings about stages that see one batch at a time, by origin. Reads no row.

    Raises `SplitAggregate` if such a stage comes before a destination that is replaced and may get several batches. The
    first batch would replace the table, and the results of the others would be appended.

    `again` is set if old rows are processed again. `only` names the one destination that gets them. Wherry asks Spark
    only about stages that `may_mix`, and only if several batches may come.
    """
    found: dict[str, Sequence[str]] = {}
    for name, origin in pipeline.origins_by_name.items():
        if name not in schemas:
            continue
        splits = list_splits(pipeline, origin, chains[name], follow=follow, again=again)
        mixed = find_mixing_stages(spark, schemas[name], chains[name]) if splits else {}
        _check_replaced(pipeline, chains[name], mixed, splits, only)
        found[name] = [
            f"stage '{step}' has {what} and sees one batch at a time, but {splits[0].why}. Nothing combines the "
            f"results of several batches. {splits[0].remedy}"
            for step, what in mixed.items()
        ]
    return found


def _check_replaced(
    pipeline: PipelineSpec, chain: StageChain, mixed: Mapping[str, str], splits: Sequence[SplitReason], only: str | None
) -> None:
    for destination in pipeline.every_destination:
        name = destination.name or ""
        if not destination.replaces or name not in chain.branches or only not in (None, name):
            continue
        for step in [each.name for each in [*chain.common, *chain.branches[name]] if each.name in mixed]:
            raise SplitAggregate(
                f"'{name}' would get a wrong result, so no row was read. Stage '{step}' has {mixed[step]} and sees "
                f"one batch at a time, but {' and '.join(split.why for split in splits)}. The mode of '{name}' is "
                "replace: the first batch would replace the table, and later batches would be appended.",
                hint="\n".join(split.remedy for split in splits),
            )


def warn_of_deduplicates(pipeline: PipelineSpec, chain: StageChain, splits: Sequence[SplitReason]) -> Iterator[str]:
    """Yield warnings about a `deduplicate` stage before a destination that is replaced.

    Wherry does not refuse this stage, because its documentation says that it looks at one batch. For other destinations
    there is no warning.
    """
    for destination in pipeline.every_destination if splits else ():
        own = chain.branches.get(destination.name or "") if destination.replaces else None
        for step in [*chain.common, *own] if own is not None else ():
            if isinstance(step.stage, Deduplicate):
                yield (
                    f"stage '{step.name}' sees one batch at a time, but {splits[0].why}. A key in two batches is in "
                    f"'{destination.name}' twice. {splits[0].remedy}"
                )


def find_mixing_stages(spark: SparkSession, schema: str, chain: StageChain) -> Mapping[str, str]:
    """Return the stages that combine several rows of a batch, by name, with a description of how. Reads no row.

    Wherry applies each stage alone to an empty frame with the columns that reach it. So the analysed plan is the plan
    of that stage only.
    """
    found: dict[str, str] = {}

    def behind(schema: T.StructType, steps: Sequence[PlacedStage]) -> T.StructType:
        for step in steps:
            rows = apply_chain(make_empty_rows(spark, schema, alias=ROWS), [step], {}, checked=True)
            what = describe_mixing(_plan(rows.frame)) if step.stage.may_mix else ()
            if what:
                found[step.name] = " and ".join(what)
            schema = rows.schema
        return schema

    if any(step.stage.may_mix for step in chain.steps):
        common = behind(T.StructType.fromJson(json.loads(schema)), chain.common)
        for steps in chain.branches.values():
            behind(common, steps)
    return found


def _plan(frame: DataFrame) -> str:
    """Return Spark's plans for the frame. `WHERE false` keeps the optimizer from reading tables of the stage."""
    explained = frame.sparkSession.sql("EXPLAIN EXTENDED SELECT * FROM {frame} WHERE false", frame=frame)
    return str(explained.collect()[0][0])


@dataclass(eq=False)
class _PlanNode:
    """A line of a plan, with the nodes below it."""

    name: str
    text: str
    """The text after the name."""
    depth: int
    inputs: list[_PlanNode] = field(default_factory=list)
    subqueries: list[_PlanNode] = field(default_factory=list)
    """The plans of the queries in its expressions."""
    ended: set[int] = field(default_factory=set)
    """The depths below it at which no further node can come."""


def describe_mixing(plan: str) -> Sequence[str]:
    """Describe the nodes of an analysed plan (`EXPLAIN EXTENDED`) that combine several of the rows called `ROWS`.

    If Spark shows no plan because the optimizer failed, the result names that. Such a plan may combine rows.

    Only the names of nodes that these rows reach count. An aggregate of another table, or of the items of one row, does
    not depend on the batch. These nodes count: aggregates, windows, DISTINCT, LIMIT and OFFSET, INTERSECT and EXCEPT,
    functions of groups, and subqueries over the rows. Joins count if they join the rows with themselves or keep rows of
    another table. A sort does not count, because it changes no row. A UNION with another table, which each batch
    repeats, does not count.
    """
    if _BEGINS not in plan:
        return ("a plan that Spark cannot show",)
    root = _parse_plan(plan)
    definitions = {_get_number(node): node for node in _all(root) if node.name == "CTERelationDef"}
    known: dict[str, bool] = {}
    found: dict[str, None] = {}

    def reaches(node: _PlanNode) -> bool:
        """Whether the rows reach this node. Records the nodes that combine them, at this node or below."""
        if node.name == "CTERelationDef":
            return False  # its references count instead
        if node.name in ("CTERelationRef", "UnionLoopRef"):
            number = _get_number(node)
            if number not in known:
                known[number] = False
                below = [reaches(each) for each in definitions[number].inputs] if number in definitions else []
                known[number] = any(below)
            return known[number]
        asked = [reaches(each) for each in node.subqueries]
        given = [reaches(each) for each in node.inputs]
        if any(asked):
            found["a subquery over the rows"] = None
        if any(given) and node.name in _WORDS:
            found[_WORDS[node.name]] = None
        if any(given) and _OF_GROUPS.fullmatch(node.name):
            found["a function of groups"] = None
        if node.name == "Join" and all(given):
            found["a join of the rows with themselves"] = None
        elif node.name == "Join" and any(given):
            kept = _KEEPS.get(node.text.split(",")[0].strip(), (False, False))
            if any(keeps and not ours for keeps, ours in zip(kept, given, strict=True)):
                found["a join that keeps rows of another table"] = None
        return any(asked) or any(given) or (node.name, node.text.strip()) == ("SubqueryAlias", ROWS)

    reaches(root)
    return tuple(found)


def _parse_plan(plan: str) -> _PlanNode:
    """Parse the analysed plan. A line that does not fit its position is part of a text with line breaks, not a node."""
    root = _PlanNode(name="", text="", depth=0)
    path = [root]
    for line in plan.partition(_BEGINS)[2].rpartition(_ENDS)[0].splitlines():
        fitting = _LINE.fullmatch(line)
        if fitting is None:
            continue
        before, mark, name, text = fitting.groups()
        node = _PlanNode(name=name, text=text, depth=len(before) // 3 + 1)
        above = next(each for each in reversed(path) if each.depth < node.depth)
        if node.depth > above.depth + 2 or node.depth in above.ended:
            continue
        above.ended.update({node.depth} if mark == "+" else ())
        (above.inputs if node.depth == above.depth + 1 else above.subqueries).append(node)
        path = [*path[: path.index(above) + 1], node]
    return root


def _all(node: _PlanNode) -> Iterator[_PlanNode]:
    yield node
    for each in [*node.subqueries, *node.inputs]:
        yield from _all(each)


def _get_number(node: _PlanNode) -> str:
    return node.text.split(",")[0].strip()
