"""Stages that combine rows of a batch, and the warnings and errors about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F

from destinations.delta import Delta
from destinations.destination import Destination
from origins.batch import Backlog, Batch
from origins.batch_rows import BatchRows
from origins.delta import Delta as DeltaOrigin
from origins.generate import Generate
from origins.memory import Memory, Pause
from origins.origin import Origin, Progress
from runners.definitions.definition import definition_of
from runners.model.errors import SplitAggregate
from runners.model.spec import PipelineSpec
from runners.running.aggregates import (
    OF_A_REPLAY,
    SplitReason,
    check_mixing,
    describe_mixing,
    find_mixing_stages,
    list_splits,
    warn_of_deduplicates,
)
from runners.running.opening import make_chain
from runners.ways.stage_chain import StageChain, name_destinations
from stages.columns import WithColumns
from stages.deduplicate import Deduplicate
from stages.rows import Rows
from stages.sql import Sql
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

GOLD = Delta(path="tables/gold", mode="replace")
SCHEMA = "id long, k string, items array<int>"
STATEMENTS = {
    "select k, count(*) as n from rows group by all": "an aggregate",
    "select count(*) as n from rows": "an aggregate",
    "select k, sum(id) as n from rows group by rollup(k)": "an aggregate",
    "from rows |> aggregate count(*) group by k": "an aggregate",
    "select * from (select id, k from rows) pivot (count(id) for k in ('a'))": "an aggregate",
    "select distinct k from rows": "a DISTINCT",
    "select *, sum(id) over (partition by k) as n from rows": "a window function",
    "select * from rows qualify row_number() over (partition by k order by id) = 1": "a window function",
    "select * from rows order by id limit 3": "a LIMIT",
    "select * from rows offset 3": "an OFFSET",
    "select k from rows intersect select 'a'": "an INTERSECT",
    "select k from rows except all select 'a'": "an EXCEPT",
    "with a as (select k, max(id) as m from rows group by k), b as (select * from a) select * from b": "an aggregate",
    "select * from (select * from (select k, max(id) as m from rows group by k) where m > 1)": "an aggregate",
    "select t.* from totals t join (select max(id) as m from rows) on t.n = m": "an aggregate",
    "select * from rows where id in (select id from rows where id > 1)": "a subquery over the rows",
    "select *, (select max(id) from rows) as m from rows": "an aggregate and a subquery over the rows",
    "select t.n from rows r right join totals t on r.k = t.k": "a join that keeps rows of another table",
    "select t.n from totals t left anti join rows r on r.k = t.k": "a join that keeps rows of another table",
    "select a.id from rows a join rows b on a.id = b.id": "a join of the rows with themselves",
}
"""Statements whose result depends on how rows are split into batches, each with its description."""
BY_ROW = [
    "select *, 'group by k, count(*) over (order by id)' as said from rows",
    "select id as `Aggregate`, k as `group by`, items as `distinct` from rows",
    "select *, 'a\n+- Aggregate [k]\n   +- SubqueryAlias _wherry_rows' as said from rows",
    "select * from rows where k <> 'distinct' -- group by k limit 3",
    "select * from rows order by id",
    "select id, explode(items) as item from rows",
    "select id, (select max(item) from explode(items) as t(item)) as m from rows",
    "select r.id, x.m from rows r, lateral (select max(item) as m from explode(r.items) as t(item)) x",
    "select rows.*, totals.n from rows left join totals on rows.k = totals.k",
    "select *, (select max(n) from totals) as m from rows",
    "with unused as (select count(*) as n from rows) select * from rows",
    "select id from rows union all select -id from rows",
]
"""Statements that give the same rows for two batches as for both batches together."""


def format_plan(*lines: str) -> str:
    """Return Spark's text of an analysed plan."""
    body = "\n".join(["Project [x#1]", *lines])
    ends = "== Optimized Logical Plan ==\nAggregate [x#1]\n\n== Physical Plan ==\n*(1) HashAggregate"
    return f"== Parsed Logical Plan ==\n'Aggregate ['x]\n\n== Analyzed Logical Plan ==\nx: int\n{body}\n\n{ends}"


def test_a_node_counts_only_if_the_rows_reach_it() -> None:
    """The same node over another table does not count."""
    there = format_plan(
        "+- Join Inner",
        "   :- SubqueryAlias a",
        "   :  +- Aggregate [x#1]",
        "   :     +- SubqueryAlias _wherry_rows",
        "   +- SubqueryAlias b",
    )
    elsewhere = there.replace("_wherry_rows", "c").replace("SubqueryAlias b", "SubqueryAlias _wherry_rows")
    assert describe_mixing(there) == ("an aggregate",)
    assert describe_mixing(elsewhere) == ()


def test_only_a_name_at_the_start_of_a_node_counts() -> None:
    """Text in a node may look like a node, and have line breaks."""
    rows = "   +- SubqueryAlias _wherry_rows"
    literal = ["+- Project [a", "+- Aggregate [x]", "         +- Window [y] AS said#2]", rows]
    assert describe_mixing(format_plan(*literal)) == ()
    assert describe_mixing(format_plan("+- Project [Aggregate AS Window#3, (GlobalLimit 3)]", rows)) == ()
    assert describe_mixing(format_plan(*literal[:-1], "   +- Window [z]", "      +- SubqueryAlias _wherry_rows")) == (
        "a window function",
    )


def test_a_plan_that_spark_cannot_show_is_reported() -> None:
    """The optimizer computes constants. If that raises an error, Spark shows no plan."""
    assert describe_mixing("Error occurred during query planning: \n[CAST_INVALID_INPUT]") == (
        "a plan that Spark cannot show",
    )


@pytest.mark.spark
@pytest.mark.connect
def test_a_dependence_on_batches_is_found_in_the_analysed_plan(spark: SparkSession) -> None:
    """The words of the statement do not matter, nor the depth of the aggregate."""
    spark.sql("select 'a' as k, 1 as n").createOrReplaceTempView("one")
    spark.sql("select k, count(*) as n from one group by k").createOrReplaceTempView("totals")
    stages = [Sql(statement, name=statement) for statement in (*STATEMENTS, *BY_ROW)]
    lines = [StageChain.of([stage], {"gold": GOLD}) for stage in stages]
    schema = spark.createDataFrame([], SCHEMA).schema.json()
    found = {line.steps[0].name: find_mixing_stages(spark, schema, line) for line in lines}
    assert found == {
        **{statement: {statement: words} for statement, words in STATEMENTS.items()},
        **{statement: {} for statement in BY_ROW},
    }


@dataclass(frozen=True, kw_only=True)
class Custom(Stage):
    """A stage of the user that works on DataFrames."""

    gathers = True
    changes_rows = True
    how: Callable[[DataFrame], DataFrame]

    def apply(self, rows: Rows) -> Rows:
        return rows.change(self.how)


@dataclass(frozen=True, kw_only=True)
class Ranked(Stage):
    """A stage that adds a column computed from other rows."""

    gathers = True
    rank: Column

    def apply(self, rows: Rows) -> Rows:
        return rows.with_columns({"rank": self.rank})


@pytest.mark.spark
@pytest.mark.connect
def test_a_users_stages_are_analysed_and_deduplicate_is_not(spark: SparkSession) -> None:
    """A stage may belong to one destination, or use columns of an earlier stage."""
    stages = [
        Custom(how=lambda rows: rows.dropDuplicates(["k"]), name="drop"),
        Deduplicate(keys=["k"], sequence_by="id"),
        WithColumns({"double": "id * 2"}),
    ]
    ranked = Ranked(rank=F.sum("double").over(Window.partitionBy("k")))
    groups = Custom(how=lambda rows: rows.groupBy("k").applyInPandas(lambda frame: frame, rows.schema), name="groups")
    line = StageChain.of(stages, {"gold": replace(GOLD, stages=[ranked, groups]), "raw": Delta(path="raw")})
    assert find_mixing_stages(spark, spark.createDataFrame([], SCHEMA).schema.json(), line) == {
        "drop": "a DISTINCT",
        "gold/ranked": "a window function",
        "gold/groups": "a function of groups",
    }


class Queue(Origin):
    """An origin of another package."""

    def survey(self, spark: SparkSession, progress: Progress) -> Backlog:
        raise NotImplementedError

    def columns(self, spark: SparkSession, backlog: Backlog) -> str | None:
        raise NotImplementedError

    def fetch(self, spark: SparkSession, batches: Sequence[Batch], *, places: bool = False) -> BatchRows:
        raise NotImplementedError


def complete_pipeline(*origins: Origin, destinations: list[Destination] | None = None, **more: Any) -> PipelineSpec:
    """Return a completed pipeline, by default into a table that is replaced."""
    given: dict[str, Any] = {"origin": origins[0]} if len(origins) == 1 else {"origins": origins}
    return definition_of(PipelineSpec(name="gold", destinations=destinations or [GOLD], **given, **more)).pipeline


def list_split_reasons(pipeline: PipelineSpec, **more: Any) -> list[SplitReason]:
    """Return the reasons why the rows of its first origin may come in several batches."""
    return list(list_splits(pipeline, pipeline.every_origin[0], make_first_chain(pipeline), **more))


def make_first_chain(pipeline: PipelineSpec) -> StageChain:
    """Return the stages of its first origin's rows."""
    return make_chain(pipeline, pipeline.every_origin[0], name_destinations(pipeline.every_destination))


@pytest.mark.parametrize(
    ("origins", "why", "remedy"),
    [
        ([Generate()], ["'generate' may give several batches"], "Write `batch: whole` at the origin 'generate'"),
        ([DeltaOrigin(path="in")], ["'delta' may give several batches"], "Write `read: whole` at the origin 'delta'"),
        ([Generate(lanes=3, batch="whole")], ["there are 3 lanes"], "Give the origin one lane"),
        (
            [Generate(batch="whole", name="a"), Generate(batch="whole", name="b")],
            ["2 origins deliver to it"],
            "Use one origin",
        ),
    ],
)
def test_each_reason_for_several_batches_has_a_remedy(origins: list[Origin], why: list[str], remedy: str) -> None:
    """Each reason has another remedy."""
    found = list_split_reasons(complete_pipeline(*origins))
    assert [each.why for each in found] == why
    assert remedy in found[0].remedy


def test_an_origin_that_gives_one_batch_has_no_reason() -> None:
    """It has one lane and a whole batch. With `--follow`, each batch is a separate load."""
    whole = complete_pipeline(Generate(batch="whole"))
    assert list_split_reasons(whole) == []
    assert list_split_reasons(whole, follow=True) == []
    assert list_split_reasons(complete_pipeline(DeltaOrigin(path="in", read="whole"))) == []
    tables = DeltaOrigin(tables=["shop.raw.a", "shop.raw.b"], read="whole")
    assert list_split_reasons(complete_pipeline(tables, destinations=[Delta(path="tables/{lane}")])) == []


def test_later_and_replayed_rows_are_other_batches() -> None:
    """A table that is read whole is followed by its changes. A replay processes refused rows."""
    table = complete_pipeline(DeltaOrigin(path="in", read="whole"))
    assert [each.why for each in list_split_reasons(table, follow=True)] == [
        "with --follow, later rows form other batches"
    ]
    assert list_split_reasons(table, again=OF_A_REPLAY) == [OF_A_REPLAY]


def test_deduplicate_before_a_replaced_table_causes_a_warning() -> None:
    """The stage may be common or the destination's. For other destinations there is no warning."""
    stage, said = Deduplicate(keys=["id"], sequence_by="id"), SplitReason(why="it rains", remedy="Wait.")
    replaced = complete_pipeline(
        Generate(), stages=[stage], destinations=[replace(GOLD, stages=[stage]), Delta(path="raw")]
    )
    told = "sees one batch at a time, but it rains. A key in two batches is in 'gold' twice. Wait."
    assert list(warn_of_deduplicates(replaced, make_first_chain(replaced), [said])) == [
        f"stage 'deduplicate' {told}",
        f"stage 'gold/deduplicate' {told}",
    ]
    assert list(warn_of_deduplicates(replaced, make_first_chain(replaced), [])) == []
    appended = complete_pipeline(Generate(), stages=[stage], destinations=[Delta(path="raw")])
    assert list(warn_of_deduplicates(appended, make_first_chain(appended), [said])) == []


@pytest.mark.spark
def test_an_aggregate_is_refused_before_a_replaced_table(spark: SparkSession) -> None:
    """Before an appended table it causes a warning. The message has the stage, the reason and the remedy. A
    destination's stage affects only that destination.
    """
    counts = Sql("select k, count(*) as n from rows group by k", name="counts")
    rows = Memory(items=[{"id": 1, "k": "a"}], schema=SCHEMA)

    def said(pipeline: PipelineSpec, **more: Any) -> list[str]:
        name, schema = pipeline.every_origin[0].name or "", str(rows.columns(spark, rows.survey(spark, Progress())))
        return list(check_mixing(pipeline, spark, {name: make_first_chain(pipeline)}, {name: schema}, **more)[name])

    with pytest.raises(SplitAggregate) as error:
        said(complete_pipeline(rows, stages=[counts]))
    assert "'gold' would get a wrong result, so no row was read. Stage 'counts' has an aggregate" in error.value.message
    assert "'memory' may give several batches" in error.value.message
    assert "`batch: whole` at the origin 'memory'" in error.value.hint
    raw = Delta(path="tables/raw")
    with pytest.raises(SplitAggregate, match="Stage 'gold/counts' has"):
        said(complete_pipeline(rows, destinations=[raw, replace(GOLD, stages=[counts])]))
    (told,) = said(complete_pipeline(rows, destinations=[GOLD, replace(raw, stages=[counts])]))
    assert told.startswith("stage 'raw/counts' has an aggregate and sees one batch at a time, but 'memory' may give")
    assert said(complete_pipeline(replace(rows, batch="whole"), stages=[counts])) == []
    both = complete_pipeline(rows, destinations=[raw, replace(GOLD, stages=[counts])])
    assert len(said(both, only="raw")) == 1


def test_a_script_with_a_pause_gives_several_batches() -> None:
    """This holds also with `batch: whole`."""
    rows = Memory(items=[{"id": 1}], schema="id long", batch="whole")
    assert not rows.may_give_several()
    assert replace(rows, items=[{"id": 1}, Pause(1.0), {"id": 2}]).may_give_several()


def test_another_origin_gives_several_batches_by_default() -> None:
    """`batch: whole` is refused if the origin cannot make one batch."""
    own = complete_pipeline(Queue(), destinations=[Delta(path="raw")])
    assert "cannot make one batch of all waiting rows" in list_split_reasons(own)[0].remedy
    with pytest.raises(ValueError, match="batch: expected limited, since it cannot"):
        Queue(batch="whole")
    with pytest.raises(ValueError, match=r"batch: expected limited.*; `read: whole` does"):
        DeltaOrigin(path="in", batch="whole")
    with pytest.raises(ValueError, match="batch: expected limited or whole, got 'all'"):
        Generate(batch="all")  # type: ignore[arg-type]
