"""Which pipelines feed which, in what order they run, and how selectors choose them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destinations.delta.delta import Delta as DeltaTable
from destinations.dlq import Dlq
from origins.delta import Delta
from origins.files.files import Files
from origins.generate import Generate
from runners.definitions.pipeline_graph import PipelineGraph
from runners.model.errors import Refusal
from runners.model.spec import PipelineSpec
from stages.lookup import Lookup

NAMES = ["a", "b", "c", "d", "e", "f"]
ARROWS = st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(lambda pair: pair[0] != pair[1]))


def make_graph(arrows: set[tuple[str, str]]) -> PipelineGraph:
    """Make a graph from arrows. Each arrow leads from a pipeline to a pipeline that it feeds."""
    return PipelineGraph({name: [start for start, end in sorted(arrows) if end == name] for name in NAMES})


def find_reached(arrows: set[tuple[str, str]], start: str) -> set[str]:
    """Return all names that are reached from a name."""
    found: set[str] = set()
    for _ in NAMES:
        found |= {end for begin, end in arrows if begin == start or begin in found}
    return found


@given(
    arrows=ARROWS.map(lambda found: {(min(pair), max(pair)) for pair in found}), chosen=st.sets(st.sampled_from(NAMES))
)
def test_a_pipeline_comes_after_those_that_feed_it(arrows: set[tuple[str, str]], chosen: set[str]) -> None:
    """The order has each chosen pipeline once."""
    order = make_graph(arrows).sort(chosen)
    assert sorted(order) == sorted(chosen)
    assert [
        (start, end) for start, end in arrows if {start, end} <= chosen and order.index(start) > order.index(end)
    ] == []


@given(arrows=ARROWS)
def test_an_order_is_refused_only_for_a_cycle(arrows: set[tuple[str, str]]) -> None:
    """It is refused if and only if a pipeline reaches itself."""
    circular = any(name in find_reached(arrows, name) for name in NAMES)
    with pytest.raises(Refusal) if circular else nullcontext():
        make_graph(arrows).sort(NAMES)


@given(arrows=ARROWS, name=st.sampled_from(NAMES))
def test_a_selector_reaches_upstream_and_downstream(arrows: set[tuple[str, str]], name: str) -> None:
    """`name+` is downstream, `+name` upstream, and `+name+` both. Several selectors are combined."""
    graph = make_graph(arrows)
    down, up = find_reached(arrows, name), find_reached({(end, start) for start, end in arrows}, name)
    assert graph.select([name]) == {name}
    assert graph.select([f"{name}+"]) == {name} | down
    assert graph.select([f"+{name}"]) == {name} | up
    assert graph.select([f"+{name}+"]) == graph.select([f"{name}+", f"+{name}"]) == {name} | up | down
    assert graph.select([]) == set(NAMES)


def test_a_cycle_is_named() -> None:
    """The message has each step."""
    with pytest.raises(Refusal, match=r"feed each other in a circle: (a → b → a|b → a → b)\."):
        make_graph({("a", "b"), ("b", "a")}).sort(["a", "b"])


def test_an_unknown_name_is_refused() -> None:
    """The message has the nearest name."""
    with pytest.raises(Refusal, match=r"There is no pipeline 'glod' here; did you mean 'gold'\?"):
        PipelineGraph({"gold": [], "silver": []}).select(["glod+"])


def find_upstream(**pipelines: PipelineSpec) -> Mapping[str, list[str]]:
    return {name: list(each) for name, each in PipelineGraph.of(pipelines).upstream.items()}


def make_writer(place: str = "/lake/orders", **how: object) -> PipelineSpec:
    """Return a pipeline that writes a table."""
    end = DeltaTable(path=place) if "/" in place else DeltaTable(table=place)
    return PipelineSpec(name="w", origin=Generate(rows=1), destinations=[end], **how)  # type: ignore[arg-type]


def make_reader(origin: Delta | Files | Generate, **how: object) -> PipelineSpec:
    """Return a pipeline that reads from this origin."""
    return PipelineSpec(name="r", origin=origin, destinations=[DeltaTable(path="/lake/other")], **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("place", "origin"),
    [
        ("/lake/orders", Delta(path="/lake/orders/")),
        ("/lake/orders", Delta(paths=["/lake/items", "/lake/orders"])),
        ("file:/lake/orders", Delta(path="/lake/orders")),
        ("s3://lake/orders/", Delta(path="s3://lake/orders")),
        ("main.shop.orders", Delta(table="main.shop.`Orders`")),
        ("orders", Delta(table="spark_catalog.default.orders")),
        ("main.shop.orders", Delta(tables=["main.shop.items", "main.shop.orders"])),
        ("/lake/orders", Files(path="/lake/orders/*.parquet", format="parquet", schema="id long")),
        ("/lake/orders", Files(path="/lake/*/*.parquet", format="parquet", schema="id long")),
        ("/lake/a/orders", Files(path="/lake/**/*.parquet", format="parquet", schema="id long")),
        ("/lake/orders", Files(path="/lake/orders/day=1", format="parquet", schema="id long")),
    ],
    ids=str,
)
def test_a_pipeline_follows_the_writer_of_its_origin(place: str, origin: Delta | Files) -> None:
    """The place may be written in several ways."""
    assert find_upstream(w=make_writer(place), r=make_reader(origin)) == {"w": [], "r": ["w"]}


@pytest.mark.parametrize(
    "origin",
    [
        Delta(path="/lake/orders_old"),
        Delta(table="main.shop.orders"),
        Files(path="/lake/*.parquet", format="parquet", schema="id long"),
        Files(path="/lake/items/*.parquet", format="parquet", schema="id long"),
        Generate(rows=1),
    ],
    ids=str,
)
def test_other_places_feed_nothing(origin: Delta | Files | Generate) -> None:
    """One name may begin like the other."""
    assert find_upstream(w=make_writer(), r=make_reader(origin)) == {"w": [], "r": []}


def test_a_lookup_makes_a_pipeline_follow_the_writer() -> None:
    """The table of a lookup is read like the table of an origin."""
    looking = make_reader(Generate(rows=1), stages=[Lookup(path="/lake/orders", on=["id"], columns=["amount"])])
    assert find_upstream(w=make_writer(), r=looking) == {"w": [], "r": ["w"]}


def test_a_dlq_feeds_the_pipelines_that_read_it() -> None:
    """The DLQ is in the state, or at a given place."""
    ours = make_writer(state="/lake/.wherry/w")
    assert find_upstream(w=ours, r=make_reader(Delta(path="/lake/.wherry/w/dlq")))["r"] == ["w"]
    theirs = make_writer(dlq=Dlq(destination=DeltaTable(path="/lake/bad")))
    assert find_upstream(w=theirs, r=make_reader(Delta(path="/lake/bad")))["r"] == ["w"]


def test_a_pipeline_does_not_wait_for_itself() -> None:
    """It may look up rows in its own table."""
    own = make_writer(stages=[Lookup(path="/lake/orders", on=["id"], columns=["amount"])])
    assert find_upstream(w=own) == {"w": []}
