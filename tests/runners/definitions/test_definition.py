"""Definitions: how they are read, and the messages for invalid ones."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from destinations.dlq import Dlq
from runners.definitions.checks import complete_pipeline, list_problems
from runners.definitions.definition import Definition, definition_of, load
from runners.definitions.document import DefinitionError
from runners.definitions.kinds import list_options
from runners.model.spec import BatchOptions, PipelineSpec, RunOptions, ScheduleOptions, SchemaState, SparkOptions
from tests.runners.engine.toys import TOYS, Call, Choose, Convert, Folder, Keep, Say, Table

SMALLEST = "name: orders\norigin: {folder: {path: landing}}\ndestinations: [{table: {path: tables/orders}}]\n"

Load = Callable[..., Definition]
Refuse = Callable[..., list[str]]


@pytest.fixture
def loaded(tmp_path: Path) -> Load:
    """A function that writes a definition beside `landing` and loads it."""

    def loaded(text: str, environment: Mapping[str, str] | None = None, **more: Any) -> Definition:
        file = tmp_path / "orders.yaml"
        file.write_text(text, encoding="utf-8")
        return load(file, environment=environment or {}, kinds=TOYS, **more)

    return loaded


@pytest.fixture
def refused(loaded: Load) -> Refuse:
    """A function that loads an invalid definition and returns the problems."""

    def refused(text: str, environment: Mapping[str, str] | None = None, **more: Any) -> list[str]:
        with pytest.raises(DefinitionError) as caught:
            loaded(text, environment, **more)
        return [str(problem) for problem in caught.value.problems]

    return refused


def write_with_origin(options: str) -> str:
    return f"name: orders\norigin:\n  folder: {options}\ndestinations: [{{table: {{path: tables/orders}}}}]\n"


def write_with_stage(stage: str) -> str:
    return f"{SMALLEST}stages:\n  - {stage}\n"


@pytest.mark.promise("DQ-14")
def test_a_definition_is_the_same_pipeline_as_in_python(loaded: Load, tmp_path: Path) -> None:
    """Kinds are classes, and options are their fields. Names and paths are completed."""
    text = """
name: orders
origin:
  folder: {path: "landing/*.json", format: csv, max_files: 100, share: 1, header: true, rows: [{a: 1}, null]}
  name: shop
  lanes: 4
stages:
  - keep: "amount > 0"
    name: positive
  - convert: {amount: "decimal(10,2)", one: 1, yes: true}
  - choose: [id, amount]
  - call: {function: "enrich:score", calls: 3}
  - call: "enrich:other"
destinations:
  - table: {table: main.shop.latest_orders, keys: [id]}
    was: old
    stages: [{keep: "amount < 10"}]
  - say:
delivery: after_any
dlq: {window: 1000, threshold: 50, say: {level: warning}}
run: {runners: 2, max_in_flight: 3, batch: {rows: null, bytes: 256MiB, files: 5, wait: 10s}, time_zone: Europe/Berlin}
spark: {conf: {spark.sql.shuffle.partitions: 4}, packages: ["a:b:1"]}
schedule: {cron: "30 2 * * mon-fri", time_zone: Europe/Berlin, on_overlap: queue, catch_up: all, jitter: 30s}
state: {schema: main.wherry}
"""
    assert loaded(text).pipeline == PipelineSpec(
        name="orders",
        origin=Folder(
            name="shop",
            lanes=4,
            path=str(tmp_path / "landing/*.json"),
            format="csv",
            max_files=100,
            share=1.0,
            header=True,
            rows=[{"a": 1}, None],
        ),
        stages=(
            Keep("amount > 0", name="positive"),
            Convert({"amount": "decimal(10,2)", "one": "1", "yes": "true"}, name="convert"),
            Choose(("id", "amount"), name="choose"),
            Call("enrich:score", calls=3, name="call"),
            Call("enrich:other", name="call"),
        ),
        destinations=(
            Table(
                name="latest_orders",
                was="old",
                table="main.shop.latest_orders",
                keys=("id",),
                stages=(Keep("amount < 10", name="keep"),),
            ),
            Say(name="say"),
        ),
        delivery="after_any",
        dlq=Dlq(window=1000, threshold=50, destination=Say(level="warning", name="dlq")),
        state=SchemaState(schema="main.wherry"),
        run_options=RunOptions(
            runners=2,
            max_in_flight=3,
            batch=BatchOptions(rows=None, bytes="256MiB", files=5, wait="10s"),
            time_zone="Europe/Berlin",
        ),
        spark=SparkOptions(conf={"spark.sql.shuffle.partitions": "4"}, packages=("a:b:1",)),
        schedule=ScheduleOptions(
            cron="30 2 * * mon-fri",
            time_zone="Europe/Berlin",
            on_overlap="queue",
            catch_up="all",
            jitter="30s",
        ),
    )


@pytest.mark.promise("CD-01")
def test_a_pipeline_needs_a_name_an_origin_and_a_destination(refused: Refuse) -> None:
    """All that are missing are named at once."""
    assert refused("state: x\n") == [
        "'name' is missing; expected text",
        "'destinations' is missing; expected a list",
        "'origin' is missing; expected a mapping",
    ]
    assert refused(SMALLEST.split("destinations")[0] + "destinations: []\n") == [
        "destinations: expected at least one destination"
    ]


def test_all_problems_are_listed_in_the_order_of_their_lines(loaded: Load) -> None:
    """The message lists every problem with its line and its path."""
    text = """name: orders
origin:
  folder:
    pth: landing
    max_files: many
stages:
  - kep: "a > 0"
  - keep: [a]
destinations:
  - table: {path: tables/orders}
dlq: {window: -1}
"""
    with pytest.raises(DefinitionError) as caught:
        loaded(text)
    assert caught.value.code == "DEFINITION"
    assert str(caught.value) == "\n".join(
        [
            "orders.yaml: 5 problems",
            "  line 4   origin.folder.pth: unknown option; did you mean 'path'?",
            "  line 5   origin.folder.max_files: expected a whole number, got the text 'many'",
            "  line 7   stages[0].kep: unknown stage; did you mean 'keep'?",
            "  line 8   stages[1].keep: expected text, got a list",
            "  line 11  dlq.window: expected 0 or more rows, got -1",
        ]
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("{path: 5}", 'path: expected text, got the number 5; to use it as text, quote it: "5"'),
        ("{path: true}", 'path: expected text, got the truth value true; to use it as text, quote it: "true"'),
        ("{path: ''}", "path: expected a path, got nothing"),
        ("{path: x, format: jsn}", "format: expected 'json' or 'csv', got the text 'jsn'"),
        ("{path: x, max_files: '5'}", "max_files: expected a whole number, got the text '5'; remove the quotes"),
        ("{path: x, max_files: 5.5}", "max_files: expected a whole number, got the number 5.5"),
        ("{path: x, max_files: true}", "max_files: expected a whole number, got the truth value true"),
        ("{path: x, max_files: [1]}", "max_files: expected a whole number, got a list"),
        ("{path: x, header: yes}", "header: expected true or false, got the text 'yes'; write true"),
        ("{path: x, header: 1}", "header: expected true or false, got the number 1"),
        ("{path: x, share: much}", "share: expected a number, got the text 'much'"),
        ("{path: x, schema: [a]}", "schema: expected text or a mapping, got a list"),
        ("{path: x, options: text}", "options: expected a mapping, got the text 'text'"),
        ("{path: x, options: {sep: [a]}}", "options.sep: expected text, got a list"),
        ("{path: x, options: {a b: }}", "options.'a b': expected text, got nothing"),
    ],
)
def test_a_value_of_another_type_is_refused_with_what_to_write(refused: Refuse, options: str, said: str) -> None:
    """The message has the expected type, the value, and often a correction."""
    assert refused(write_with_origin(options)) == [f"origin.folder.{said}"]


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        ("keep:", "[0].keep: expected text, got nothing"),
        ("keep: NULL", '[0].keep: expected text, got NULL; to use it as text, quote it: "NULL"'),
        ("convert: {a: NULL}", '[0].convert.a: expected text, got NULL; to use it as text, quote it: "NULL"'),
        ("keep: ' '", "[0].keep: expected an expression, got nothing"),
        ("choose: id", "[0].choose: expected a list, got the text 'id'; put it in brackets: [id]"),
        ("{keep: a, choose: [a]}", "[0]: expected one stage, got keep and choose; make each an item of its own"),
        ("{name: a}", "[0]: expected a kind of stage: keep or convert or choose or call"),
        ("keep", "[0]: expected a mapping such as `keep: {…}`, got the text 'keep'"),
        ("table: {path: x}", "[0].table: expected a kind of stage, got a kind of destination"),
        ("{keep: a, nam: b}", "[0].nam: unknown option beside 'keep'; did you mean 'name'?"),
        ("{keep: a, name: a/b}", r"[0].name: expected a name of at most 100 characters without / \ and #, got 'a/b'"),
        ("call: {calls: 2}", "[0].call: 'function' is missing; expected text"),
        ("call: {function: f, name: g}", "[0].call.name: belongs beside 'call', not inside of it"),
        ("call: {function: f, cals: 2}", "[0].call.cals: unknown option; did you mean 'calls'?"),
        ("{call: , calls: 2}", "[0].calls: belongs inside of 'call'; indent it further"),
        ("convert: {columns: {a: int}}", "[0].convert.columns: belongs directly under 'convert'; leave out 'columns'"),
    ],
)
def test_an_invalid_stage_is_refused_with_what_to_write(refused: Refuse, stage: str, said: str) -> None:
    """NULL is no expression, a stage has one kind, and options of the kind belong inside it."""
    assert f"stages{said}" in refused(write_with_stage(stage))


def test_options_beside_their_kind_are_refused_with_the_right_place(refused: Refuse) -> None:
    """The indentation is wrong. Such an option is not reported as missing."""
    text = "name: orders\norigin:\n  folder:\n  path: landing\ndestinations:\n- table:\n  path: x\n"
    assert refused(text)[0] == "origin.path: belongs inside of 'folder'; indent it further"
    assert not any("missing" in said for said in refused(text))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("metrics: {}", "metrics: unknown option; expected one of name, origin, origins, destinations,"),
        ("delivry: after_all", "delivry: unknown option; did you mean 'delivery'?"),
        ("run_options: {}", "run_options: unknown option; expected one of"),
        ("delivery: after_some", "delivery: expected 'after_all' or 'after_any', got the text 'after_some'"),
        ("dlq: 5", "dlq: expected a mapping such as {window: 1000, threshold: 50}, got the number 5"),
        ("dlq: {windw: 5}", "dlq.windw: unknown option; did you mean 'window'?"),
        ("dlq: {tabl: {path: x}}", "dlq.tabl: unknown option; did you mean 'table'?"),
        ("dlq: {table: {path: x}, say: {}}", "dlq: expected one destination, got table and say"),
        ("dlq: {destination: {say: {}}}", "dlq.destination: unknown option"),
        ("dlq: {window: 10, threshold: 50}", "dlq.threshold: 50 refused rows never fit into a window of 10 rows"),
        ("dlq: {retain: 30}", "dlq.retain: expected a mapping or text such as 30d, got the number 30"),
        ("dlq: {retain: long}", "dlq.retain: expected a duration such as 500ms"),
        ("dlq: {retain: {CAST: long}}", "dlq.retain.CAST: expected a duration such as 500ms"),
        ("dlq: {budget: 500MiB}", "dlq.budget: expected a whole number such as 100000, got the text '500MiB'"),
        ("dlq: {fallback: {table: {path: x}}}", "dlq.fallback: it has no effect; set on_failure: fallback"),
        ("dlq: {copy: [{say: {}}, {say: {}}]}", "dlq.copy[1]: 'say' is the name of dlq.copy[0] already"),
        ("dlq: {copy: [{say: {}, when: x}]}", "dlq.copy[0].when: unknown option beside 'say'"),
        ("keep_filtered: 30", "keep_filtered: expected text such as 30d, got the number 30"),
        ("keep_filtered: long", "keep_filtered: expected a duration such as 500ms"),
        ("run: {batch: {wait: 10}}", "run.batch.wait: expected text such as 10s, got the number 10"),
        ("run: {batch: {wait: soon}}", "run.batch.wait: expected a duration such as 500ms"),
        ("run: {retry: {wait: soon}}", "run.retry.wait: expected a duration such as 500ms"),
        ("run: {lease: 500ms}", "run.lease: expected at least one second, got '500ms'"),
        ("run: {lease: long}", "run.lease: expected a duration such as 500ms"),
        ("run: {assignment: all}", "run.assignment: expected 'single' or 'round_robin' or 'local_only'"),
        ("run: {assignment: local_only, ownership: off}", "run.assignment: expected single where run.ownership is off"),
        ("run: {ownership: maybe}", "run.ownership: expected 'on' or 'off', got the text 'maybe'"),
        ("run: {snapshot: 21}", "run.snapshot: expected 0 to 20 rows, got 21"),
        ("run: {snapshot: -1}", "run.snapshot: expected 0 to 20 rows, got -1"),
        ("run: {group: ''}", "run.group: expected a-z first, then a-z, 0-9, _ and -, at most 100, got ''"),
        ("run: {group: Warehouse}", "run.group: expected a-z first, then a-z, 0-9, _ and -, at most 100, got 'Ware"),
        ("run: {group: 2}", "run.group: expected text such as warehouse, got the number 2"),
        ("run: {group: '2'}", "run.group: expected a-z first"),
        ("run: {group: a/b}", "run.group: expected a-z first"),
        ("run: {group: [a, b]}", "run.group: expected text such as warehouse, got a list"),
        ("protect: ['']", "protect: expected a list of columns, got"),
        (
            "run: {retry: {attempts: -2}}",
            "run.retry.attempts: expected a number of attempts, or -1 for no limit, got -2",
        ),
        ("run: {retry: {also: ['']}}", "run.retry.also: expected a list of words"),
        ("run: {batch: {bytes: much}}", "run.batch.bytes: expected a size such as 500kB"),
        ("run: {time_zone: Mars/Base}", "run.time_zone: expected a time zone such as UTC"),
        ("run: {time_zone: ../../etc/passwd}", "run.time_zone: expected a time zone such as UTC"),
        ("schedule: {}", "schedule: expected one of cron, every and after, got none of them"),
        (
            'schedule: {cron: "@daily", every: 5m}',
            "schedule: expected one of cron, every and after, got cron and every",
        ),
        ('schedule: {cron: "0 0 30 2 *"}', "schedule.cron: it never fires: no month of '0 0 30 2 *' has such a day"),
        ("schedule: {cron: 6}", "schedule.cron: expected text such as"),
        ("schedule: {cron: nightly}", 'schedule.cron: expected a line of crontab such as "30 2 * * *" or "@daily"'),
        ("schedule: {every: 5}", "schedule.every: expected text such as 5m, got the number 5"),
        ("schedule: {every: 10ms}", "schedule.every: expected at least 1s, got '10ms'"),
        ("schedule: {after: orders}", "schedule.after: a pipeline cannot wait for itself"),
        ('schedule: {cron: "@daily", time_zone: Mars/Base}', "schedule.time_zone: expected a time zone such as UTC"),
        ("schedule: {every: 1d, time_zone: Europe/Berlin}", "schedule.time_zone: has no effect on `every`"),
        ("schedule: {every: 1d, jitter: some}", "schedule.jitter: expected a duration such as 500ms"),
        ("schedule: {every: 1d, catch_up: twice}", "schedule.catch_up: expected 'none' or 'once' or 'all'"),
        ("schedule: {every: 1d, on_overlap: kill}", "schedule.on_overlap: expected 'skip' or 'queue'"),
        ("schedule: nightly", "schedule: expected a mapping, got the text 'nightly'"),
        (
            "state: viewfs://bucket/state",
            "state: expected a directory of this machine, s3://, abfss://, gs:// or {schema",
        ),
        ("state: {shema: x}", "state.shema: unknown option; did you mean 'schema'?"),
        (
            "state: /Workspace/Users/a@b.c/state",
            "state: expected {schema: catalog.schema}, got /Workspace/Users/a@b.c/state, where files have no hard",
        ),
        (
            "state: /Volumes/main/shop/wherry",
            "state: expected {schema: catalog.schema}, got /Volumes/main/shop/wherry, where files have no hard links",
        ),
        ("state: {schema: main.wherry, volume: rows}", "state.volume: expected a volume such as main.wherry.rows"),
        ("state: {schema: a; drop table b}", "state.schema: expected a schema such as main.wherry"),
        ("stages: {keep: a}", "stages: expected a list, got a mapping; put a dash before each"),
        ("spark: {packages: a}", "spark.packages: expected a list, got the text 'a'; put it in brackets: [a]"),
    ],
)
def test_an_invalid_setting_is_refused_with_what_to_write(refused: Refuse, more: str, said: str) -> None:
    """The message begins with the path of the setting."""
    assert [problem for problem in refused(f"{SMALLEST}{more}\n") if problem.startswith(said)]


@pytest.mark.parametrize("directory", ["/Workspace/Users/a@b.c", "/Volumes/main/shop/definitions"])
def test_a_definition_without_links_beside_it_needs_a_state_elsewhere(directory: str) -> None:
    """The default state is below the definition, or in Python below the working directory."""
    pipeline = PipelineSpec(name="orders", origin=Folder(path="/in"), destinations=[Table(path="/out")])
    (problem,) = list_problems(complete_pipeline(pipeline, TOYS), Path(directory))
    assert (problem.path, f"got {directory}/.wherry/orders, where" in problem.message) == ("state", True)
    assert [*list_problems(complete_pipeline(pipeline, TOYS), Path("/home/ada"))] == []


@pytest.mark.parametrize(
    ("end", "path", "volume"),
    [
        (
            "origin:\n  files: {path: /Workspace/Users/a@b.c/in/*.json, format: json}",
            "origin.path",
            "/Volumes/CATALOG/SCHEMA/VOLUME/*.json",
        ),
        (
            "origin:\n  files: {path: /Volumes/a/b/c/*.json, format: json, after: move, move_to: /Workspace/done}",
            "origin.move_to",
            "/Volumes/CATALOG/SCHEMA/VOLUME/done",
        ),
        (
            "origin:\n  delta: {paths: [/Volumes/a/b/c/orders, /Workspace/Shared/items]}",
            "origin.paths",
            "/Volumes/CATALOG/SCHEMA/VOLUME/items",
        ),
        (
            "origin: {dlq: {path: /Workspace/Shared/refused}}",
            "origin.path",
            "/Volumes/CATALOG/SCHEMA/VOLUME/refused",
        ),
        (
            "dlq: {delta: {path: /Workspace/Shared/refused}}",
            "dlq.path",
            "/Volumes/CATALOG/SCHEMA/VOLUME/refused",
        ),
    ],
)
def test_a_place_in_the_workspace_is_refused_on_databricks(
    end: str, path: str, volume: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python lists `/Workspace/in`, and Spark reads the same text as `dbfs:/Workspace/in`. Elsewhere both agree."""
    files = "" if end.startswith("origin") else "origin: {files: {path: /Volumes/a/b/c/*.json, format: json}}\n"
    file = tmp_path / "orders.yaml"
    file.write_text(f"name: orders\n{files}{end}\ndestinations: [{{delta: {{table: main.shop.orders}}}}]\n")
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION", raising=False)
    load(file)
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    with pytest.raises(DefinitionError) as refused:
        load(file)
    ((where, said),) = [(problem.path, problem.message) for problem in refused.value.problems]
    assert (where, f"expected {volume}, got '/Workspace/" in said) == (path, True), said


def test_a_kind_of_another_package_may_read_the_workspace(loaded: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may use Python alone."""
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    (origin,) = loaded(SMALLEST.replace("landing", "/Workspace/Shared/in")).pipeline.given_origins
    assert origin.place == "/Workspace/Shared/in"


@pytest.mark.promise("HP-22")
@pytest.mark.parametrize(
    "setting",
    [
        "runners: 0",
        "max_in_flight: 0",
        "max_in_flight: -1",
        "batch: {rows: 0}",
        "batch: {files: 0}",
        "batch: {bytes: 0B}",
    ],
)
def test_settings_that_allow_no_row_are_refused(refused: Refuse, setting: str) -> None:
    """A run without runners, or batches without room, would wait without end."""
    (said,) = refused(f"{SMALLEST}run: {{{setting}}}\n")
    assert said.endswith("no row would ever be processed")


@pytest.mark.parametrize("name", ["a b", "a/b", "..", "", "<b>x</b>", "a.b", "x" * 101, "-a"])
def test_a_name_that_is_no_valid_folder_name_is_refused(refused: Refuse, name: str) -> None:
    """The name of a pipeline is the name of its state."""
    assert refused(SMALLEST.replace("name: orders", f"name: {json.dumps(name)}"))[0].startswith(
        "name: expected letters"
    )


def test_a_state_in_tables_needs_a_name_for_tables(refused: Refuse) -> None:
    """The name of a table cannot have a dash."""
    text = SMALLEST.replace("orders\norigin", "my-orders\norigin") + "state: {schema: main.wherry}\n"
    assert refused(text) == ["name: names tables in the state's schema: expected a-z, 0-9 and _, got 'my-orders'"]


@pytest.mark.parametrize(
    ("destination", "name"),
    [
        ("table: {path: tables/orders}", "orders"),
        ("table: {path: tables/orders/}", "orders"),
        ("table: {path: tables/orders.delta}", "orders.delta"),
        ("table: {path: 's3://bucket/gold/orders'}", "orders"),
        ("table: {table: main.shop.orders}", "orders"),
        ("table: {table: 'main.`my.shop`.`my orders`'}", "my orders"),
        ("table: {table: orders}", "orders"),
        ("{table: {table: orders}, name: latest}", "latest"),
        ("say: {}", "say"),
    ],
)
def test_a_destination_is_named_after_the_last_part_of_its_place(loaded: Load, destination: str, name: str) -> None:
    """Without a place it has the name of its kind. The definition can set another name."""
    text = SMALLEST.replace("{table: {path: tables/orders}}", "") + f"  - {destination}\n"
    assert loaded(text.replace("destinations: []", "destinations:")).pipeline.destinations[0].name == name


@pytest.mark.parametrize(
    ("more", "names"), [("", ["sales", "people"]), ("\n    name: copy", ["copy.sales", "copy.people"])]
)
def test_a_place_with_the_lane_is_one_destination_for_each_table(tmp_path: Path, more: str, names: list[str]) -> None:
    """Tables of a catalog work too. Each destination gets only the rows of its lane."""
    (tmp_path / "orders.yaml").write_text(
        "name: orders\norigin:\n  delta: {tables: [raw.sales, raw.people]}\n"
        f'destinations:\n  - delta: {{table: "bronze.{{lane}}", stamp: _batch}}{more}\n'
    )
    found = load(tmp_path / "orders.yaml").pipeline.every_destination
    assert [each.name for each in found] == names
    assert [each.place for each in found] == ["bronze.sales", "bronze.people"]
    assert [[lane for lane in ("sales", "people") if each.takes([lane])] for each in found] == [["sales"], ["people"]]


BY_LANE = """
name: orders
{origins}
destinations:
  - delta: {{path: "bronze/{{lane}}"}}
"""


@pytest.mark.parametrize(
    ("origins", "said"),
    [
        (
            "origin:\n  files: {path: x, format: text}",
            "destinations[0]: {lane} stands for a table's name, but",
        ),
        ("origin:\n  delta: {paths: [a/x, b/X]}", "origin.delta.paths: expected names that differ in their last part"),
        (
            "origin:\n  delta: {tables: [a.x], paths: [b/y]}",
            "origin.delta.path: expected one of path, table, paths and",
        ),
        ("origin:\n  delta: {paths: [a/..]}", "origin: expected a table's name of at most 100 characters"),
        ("origin:\n  delta: {tables: ['raw.`a/b`']}", "origin: expected a table's name of at most 100 characters"),
        ("origin:\n  delta: {paths: [a/backfill-1]}", "origin: a lane cannot have the name 'backfill-1'"),
        (
            "origins:\n  - {delta: {paths: [a/b_c]}, name: x}\n  - {delta: {paths: [a/c]}, name: x_b}",
            "destinations[0]: for the lane x_b/c its name is 'x_b_c', as that of destinations[0] for the lane x/b_c",
        ),
    ],
)
def test_a_lane_needs_a_unique_name(tmp_path: Path, origins: str, said: str) -> None:
    """It must be the name of a table, be valid as a folder, and not equal another destination's name."""
    (tmp_path / "orders.yaml").write_text(BY_LANE.format(origins=origins))
    with pytest.raises(DefinitionError) as refused:
        load(tmp_path / "orders.yaml")
    assert any(str(problem).startswith(said) for problem in refused.value.problems), refused.value


def test_no_secret_becomes_the_name_of_a_lane(tmp_path: Path) -> None:
    """The ledger would store it."""
    origin = 'origin:\n  delta: {tables: ["raw.${secret:NAME}"]}'
    (tmp_path / "orders.yaml").write_text(BY_LANE.format(origins=origin))
    with pytest.raises(DefinitionError) as refused:
        load(tmp_path / "orders.yaml", secrets={"NAME": "hidden"})
    assert "expected a table's name without a secret" in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_a_place_with_the_lane_cannot_be_replaced(tmp_path: Path) -> None:
    """In the mode `replace`, only a run's first batch replaces the table."""
    text = BY_LANE.format(origins="origin:\n  delta: {paths: [a/x]}").replace('{lane}"}', '{lane}", mode: replace}')
    (tmp_path / "orders.yaml").write_text(text)
    with pytest.raises(DefinitionError, match=r"mode: expected append or merge with .lane. in the place"):
        load(tmp_path / "orders.yaml")


def test_two_destinations_with_one_name_are_refused(refused: Refuse) -> None:
    """Case does not matter, and the name `dlq` is reserved."""
    text = SMALLEST.replace("destinations: [", "destinations: [{table: {table: main.ORDERS}}, {say: {}, name: dlq}, ")
    assert refused(text) == [
        "destinations[1]: 'dlq' is the name of the DLQ; choose another `name:`",
        "destinations[2]: 'orders' is the name of destinations[0] already; give one of them another `name:`",
    ]


def test_an_old_name_cannot_be_the_name_of_another_destination(refused: Refuse) -> None:
    """`was` names a destination that no longer exists."""
    text = SMALLEST.replace("destinations: [", "destinations: [{say: {}, was: orders}, ")
    assert refused(text) == [
        "destinations[0].was: 'orders' is the name of a destination in this definition; `was` takes an old name"
    ]


@pytest.mark.parametrize(
    ("more", "own", "other"),
    [
        ("", "path: .wherry/orders/dlq", "path: .wherry/returns/dlq"),
        ("state: ../kept", "path: ../kept/dlq", "path: .wherry/orders/dlq"),
        ("state: s3://shop/kept", "path: s3://shop/kept/dlq", "path: s3://shop/dlq"),
        ("state: {schema: main.wherry}", "table: main.wherry.orders_dlq", "table: main.wherry.returns_dlq"),
        ("dlq: {window: 0, delta: {path: bad}}", "path: bad", "path: .wherry/orders/dlq"),
    ],
)
def test_a_pipeline_cannot_read_its_own_dlq(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, own: str, other: str
) -> None:
    """This holds for each place of the DLQ. It can read another pipeline's DLQ."""
    monkeypatch.chdir(tmp_path)
    text = "name: orders\norigin: {{dlq: {{{}}}}}\ndestinations: [{{log: {{}}}}]\n{}\n"
    file = tmp_path / "orders.yaml"
    file.write_text(text.format(other, more))
    load(file)
    file.write_text(text.format(own, more))
    option = own.split(":")[0]
    with pytest.raises(DefinitionError, match=rf"origin\.{option}: expected the DLQ of another pipeline, got its own"):
        load(file)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("landing/*.json", "{here}/landing/*.json"),
        ("/data/x", "/data/x"),
        ("s3a://bucket/x", "s3a://bucket/x"),
        ("dbfs:/x", "dbfs:/x"),
        ("file:///x", "file:///x"),
        ("~/x", "{home}/x"),
    ],
)
def test_paths_are_relative_to_the_definition(
    loaded: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, meant: str
) -> None:
    """The working directory does not matter. Addresses and absolute paths do not change."""
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.chdir("/")
    origin = loaded(write_with_origin(f'{{path: "{written}"}}')).pipeline.every_origin[0]
    assert origin.place == meant.format(here=tmp_path, home="/home/me")


def test_the_folder_of_the_definition_is_never_a_pattern(tmp_path: Path) -> None:
    """Only the path in the definition can have wildcards."""
    folder = tmp_path / "my [old] project?"
    folder.mkdir()
    (folder / "orders.yaml").write_text(write_with_origin("{path: landing/*.json}"))
    assert load(folder / "orders.yaml", kinds=TOYS).pipeline.every_origin[0].place == (
        f"{tmp_path}/my [[]old] project[?]/landing/*.json"
    )
    (folder / "orders.yaml").write_text(write_with_origin("{path: landing}"))
    assert load(folder / "orders.yaml", kinds=TOYS).pipeline.every_origin[0].place == f"{folder}/landing"


def test_the_state_is_beside_the_definition_by_default(loaded: Load, tmp_path: Path) -> None:
    """It is in `.wherry/<name>`. Another path is relative to the definition."""
    assert loaded(SMALLEST).pipeline.state == str(tmp_path / ".wherry/orders")
    assert loaded(f"{SMALLEST}state: here\n").pipeline.state == str(tmp_path / "here")


def test_text_may_come_from_a_file_beside_the_definition(loaded: Load, tmp_path: Path) -> None:
    """`{file: …}` replaces a text. The stored definition has the text of the file."""
    (tmp_path / "orders.ddl").write_text("id long,\namount string\n")
    (tmp_path / "good.sql").write_text("\ufeffamount > 0\n", encoding="utf-8")
    definition = loaded(
        write_with_origin("{path: x, schema: {file: orders.ddl}}") + "stages: [{keep: {file: good.sql}}]\n"
    )
    assert definition.pipeline.origin == Folder(
        path=str(tmp_path / "x"), schema="id long,\namount string", name="folder"
    )
    assert definition.pipeline.stages == (Keep("amount > 0", name="keep"),)
    assert json.loads(definition.text)["stages"] == [{"keep": "amount > 0"}]


def test_a_mapping_may_have_a_name_file(loaded: Load) -> None:
    """A column with the name `file` is not read from a file."""
    origin = loaded(write_with_origin("{path: x, schema: {file: string}}")).pipeline.origin
    assert isinstance(origin, Folder)
    assert origin.schema == {"file": "string"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gone.sql", "'gone.sql' cannot be read: No such file or directory"),
        (".", "'.' cannot be read: Is a directory"),
        ("latin.sql", "expected UTF-8 text in 'latin.sql'"),
        ("large.sql", "expected at most 1 MiB in 'large.sql'"),
        ("'a\\0b'", "expected a path without NUL"),
        ("[a]", "expected the path of a file, got a list"),
        ("", "expected the path of a file, got nothing"),
    ],
)
def test_a_file_that_cannot_be_read_is_reported(refused: Refuse, tmp_path: Path, name: str, said: str) -> None:
    """The message has the path as the definition has it."""
    (tmp_path / "latin.sql").write_bytes(b"\xfc")
    (tmp_path / "large.sql").write_bytes(b" " * (1 << 20) + b"x")
    (problem,) = refused(write_with_stage(f"keep: {{file: {name}}}").replace("'a\\0b'", '"a\\0b"'))
    assert problem.startswith(f"stages[0].keep.file: {said}")


def test_a_kind_whose_package_is_missing_is_reported(refused: Refuse) -> None:
    """The message has the import's error, and the path of the kind."""
    text = SMALLEST.replace("destinations: [", "destinations: [{lost: {}}, ")
    assert refused(text) == [
        "destinations[0]: the destination 'lost' cannot be used here: No module named 'tests.runners.no_such_module'"
    ]


@pytest.mark.parametrize("text", ["- a\n", "text", "5", "null", "[]"])
def test_a_document_that_is_no_mapping_is_refused(refused: Refuse, text: str) -> None:
    """The message lists the options of a definition."""
    assert refused(text)[0].startswith("expected a mapping with name, origin, origins, destinations")


def test_a_missing_file_is_reported_with_a_similar_one(tmp_path: Path) -> None:
    """Without a similar file in the folder there is no suggestion."""
    (tmp_path / "orders.yaml").write_text(SMALLEST)
    with pytest.raises(DefinitionError, match="there is no such file") as caught:
        load(tmp_path / "order.yml", kinds=TOYS)
    assert caught.value.hint == f"Did you mean {tmp_path / 'orders.yaml'}?"
    with pytest.raises(DefinitionError, match="there is no such file"):
        load(tmp_path / "no" / "such.yaml", kinds=TOYS)


def test_a_folder_is_refused_with_the_definition_in_it(tmp_path: Path) -> None:
    """It is the definition with the folder's name, or a similar one. Without one, the hint names `wherry demo`."""
    folder = tmp_path / "orders"
    folder.mkdir()
    with pytest.raises(DefinitionError, match="expected a file, got a folder; name a definition in it") as caught:
        load(folder, kinds=TOYS)
    assert caught.value.hint == "`wherry demo` creates a first definition."
    for name in ("customers.yaml", "orders.yaml"):
        (folder / name).write_text(SMALLEST)
    with pytest.raises(DefinitionError) as caught:
        load(folder, kinds=TOYS)
    assert caught.value.hint == f"Did you mean {folder / 'orders.yaml'}?"


KEY = 'hunter2"\\x'


def test_a_secret_is_only_in_the_pipeline(loaded: Load, refused: Refuse) -> None:
    """It is not in the stored text, in a name made from a place, or in a problem."""
    text = SMALLEST.replace("path: tables/orders", "table: 'main.${secret:KEY}'")
    definition = loaded(text, {"KEY": KEY})
    (destination,) = definition.pipeline.destinations
    assert (destination.place, destination.name) == (f"main.{KEY}", "table")
    assert "${secret:KEY}" in definition.text
    assert json.dumps(KEY)[1:-1] not in definition.text
    (said,) = refused(f"{SMALLEST}delivery: ${{secret:KEY}}\n", {"KEY": KEY})
    assert said == "delivery: expected 'after_all' or 'after_any', got the text '${secret:KEY}'"


def test_a_secret_number_is_stored_as_its_reference(loaded: Load) -> None:
    """Its value is not in the stored text."""
    definition = loaded(SMALLEST + "run: {lease: 1h, runners: '${secret:KEY}', drain: 9h}\n", {"KEY": "4711"})
    assert definition.pipeline.run_options.runners == 4711
    assert json.loads(definition.text)["run"]["runners"] == "${secret:KEY}"
    assert "4711" not in definition.text


def test_a_truth_value_cannot_be_a_secret(refused: Refuse) -> None:
    """There are only two of them."""
    (said,) = refused(SMALLEST + "dlq: {window: 5, original: '${secret:KEY}'}\n", {"KEY": "true"})
    assert said.startswith("dlq.original: expected")
    assert "got the text '${secret:KEY}'; a secret can be text or a number" in said


@pytest.mark.parametrize("path", ["name", "destinations[0].name", "destinations[0].was"])
def test_a_name_cannot_have_a_secret(refused: Refuse, path: str) -> None:
    """The name is in the ledger and in every report."""
    text = {
        "name": SMALLEST.replace("name: orders", "name: '${secret:KEY}'"),
        "destinations[0].name": SMALLEST.replace("orders}}]", "orders}, name: '${secret:KEY}'}]"),
        "destinations[0].was": SMALLEST.replace("orders}}]", "orders}, was: '${secret:KEY}'}]"),
    }[path]
    said = f"{path}: expected a name without a secret, since Wherry shows names and keeps them in the ledger"
    assert refused(text, {"KEY": "shop"}) == [said]


@pytest.mark.parametrize("secret", ["orders", "o", "tables", "table", "path", "name", "folder"])
def test_a_secret_equal_to_a_word_of_the_definition_changes_nothing(loaded: Load, secret: str) -> None:
    """Only the value that uses the secret is stored as its reference."""
    text = write_with_origin("{path: x, schema: '${secret:KEY}'}")
    definition = loaded(text, {"KEY": secret})
    other = loaded(text, {"KEY": "hunter2hunter2"})
    assert definition.text == other.text
    assert [each.name for each in definition.pipeline.destinations] == [
        each.name for each in other.pipeline.destinations
    ]


def test_a_path_cannot_have_a_secret(refused: Refuse) -> None:
    """The ledger and the DLQ store paths."""
    said = "expected a path without a secret, since the ledger and the DLQ keep it; `spark.conf` may have one"
    text = write_with_origin("{path: 's3a://${secret:KEY}@bucket/x'}") + "state: 'a/${secret:KEY}'\n"
    assert refused(text, {"KEY": KEY}) == [f"origin.folder.path: {said}", f"state: {said}"]


def test_a_changed_pipeline_keeps_its_secrets(loaded: Load) -> None:
    """If Python changes a loaded pipeline, its text still has the references."""
    pipeline = loaded(write_with_origin("{path: x, schema: '${secret:KEY}'}"), {"KEY": KEY}).pipeline
    text = definition_of(replace(pipeline, delivery="after_any"), kinds=TOYS).text
    assert json.loads(text)["origin"]["folder"]["schema"] == "${secret:KEY}"


def test_a_definition_can_be_loaded_without_secrets(loaded: Load, refused: Refuse) -> None:
    """So a user can read the status of a pipeline without being able to run it."""
    text = write_with_origin("{path: x, schema: '${secret:KEY}'}")
    assert refused(text) == [
        "origin.folder.schema: the secret KEY is missing; set it in the environment, or use --secrets FILE"
    ]
    assert loaded(text, needs_secrets=False).pipeline.name == "orders"


def test_the_text_is_the_same_in_every_folder(tmp_path: Path) -> None:
    """A path is stored as it was given, and is resolved from the definition's folder."""
    found = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "orders.yaml").write_text(SMALLEST)
        found.append(load(tmp_path / name / "orders.yaml", kinds=TOYS))
    first, second = found
    assert (first.text, first.hash) == (second.text, second.hash)
    assert [each.pipeline.state for each in found] == [f"{tmp_path}/{name}/.wherry/orders" for name in ("a", "b")]
    assert str(tmp_path) not in first.text
    assert definition_of(first.pipeline, kinds=TOYS).text == first.text


STORED = """
name: orders
origins:
  - files: {path: "STORE/landing/*.csv", format: csv}
    name: files
    stages: [{lookup: {file: "STORE/lists/codes.csv", on: [code], columns: [name]}}]
  - delta: {paths: ["STORE/a", "STORE/b"]}
    name: tables
stages:
  - deduplicate: {keys: [id], against: {path: "STORE/seen"}}
destinations:
  - delta: {path: "STORE/tables/orders"}
  - files: {path: "STORE/export", format: json}
    stages: [{lookup: {path: "STORE/customers", on: [id], columns: [segment]}}]
dlq: {delta: {path: "STORE/dlq"}}
state: STORE/state
"""


def test_each_place_in_a_store_has_one_address(tmp_path: Path) -> None:
    """This holds for each way to write it, in the text and in what Spark gets."""
    given = []
    for place in ("s3://bucket", "s3a://bucket", "S3://bucket//"):
        (tmp_path / "orders.yaml").write_text(STORED.replace("STORE", place))
        given.append(load(tmp_path / "orders.yaml"))
    assert len({definition.hash for definition in given}) == 1
    text = given[0].text
    assert (text.count("s3a://bucket/"), text.lower().count("s3://")) == (STORED.count("STORE"), 0)
    assert given[0].pipeline.every_destination[0].place == "s3a://bucket/tables/orders"


@pytest.mark.promise("CN-14")
def test_the_text_changes_only_with_the_values(loaded: Load) -> None:
    """Comments, quotes and parameters do not change it."""
    plain = loaded(SMALLEST + "run: {runners: 2}\n")
    other = loaded("# why\n" + SMALLEST + "run:\n  runners: ${N}\n", variables={"N": "2"})
    assert (plain.text, plain.hash) == (other.text, other.hash)
    assert plain.hash != loaded(SMALLEST + "run: {runners: 3}\n").hash
    assert json.loads(plain.text)["run"] == {"runners": 2}


def test_a_pipeline_made_in_python_is_a_definition(
    loaded: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text is that of a written definition, and it is checked in the same way."""
    pipeline = PipelineSpec(
        name="orders",
        origin=Folder(path=str(tmp_path / "landing")),
        stages=[Keep("a > 0"), Convert({"a": "int"})],
        destinations=[Table(path=str(tmp_path / "tables/orders"), stages=[Choose(("a",))])],
        dlq=Dlq(window=10, destination=Say()),
        run_options=RunOptions(runners=2),
    )
    monkeypatch.chdir(tmp_path)
    definition = definition_of(pipeline, kinds=TOYS)
    assert loaded(definition.text).pipeline == definition.pipeline
    assert definition.path is None
    with pytest.raises(DefinitionError, match=r"name: expected letters"):
        definition_of(PipelineSpec(name="a b", origin=pipeline.origin, destinations=pipeline.destinations), kinds=TOYS)


SHAPES = (PipelineSpec, Folder, Keep, Call, Table, Say, Dlq, RunOptions, BatchOptions, SparkOptions, SchemaState)
KEYS = ["", "a b", "run", "file", *TOYS.origins, *TOYS.stages, *TOYS.destinations]
KEYS += [option for shape in SHAPES for option in list_options(shape)]


WORDS = [
    "",
    "1",
    "true",
    "json",
    "csv",
    "10s",
    "10MB",
    "after_all",
    "x/y",
    "a.b",
    "${",
    "${secret:K}",
    "UTC",
    "\0",
    "a\nb",
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 10**6) | st.floats() | st.sampled_from(WORDS) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(
    parts=st.fixed_dictionaries(
        {
            "name": st.just("orders") | VALUES,
            "origin": st.fixed_dictionaries({"folder": st.just({"path": "x"}) | VALUES}) | VALUES,
            "stages": st.lists(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=2), max_size=2) | VALUES,
            "destinations": st.just([{"say": {}}]) | VALUES,
        },
        optional=dict.fromkeys(("dlq", "run", "state", "spark", "delivery", "other"), VALUES),
    )
)
def test_any_structure_is_a_definition_or_a_definition_error(
    tmp_path_factory: pytest.TempPathFactory, parts: dict[str, object]
) -> None:
    """Any structure can be read and written, or is refused with its problems."""
    file = tmp_path_factory.getbasetemp() / "structure.yaml"
    file.write_text(json.dumps(parts), encoding="utf-8")
    with contextlib.suppress(DefinitionError):
        definition = load(file, environment={"K": "secret"}, kinds=TOYS)
        assert definition_of(definition.pipeline, kinds=TOYS) == replace(definition, path=None)


@settings(max_examples=150)
@given(
    text=st.text(alphabet="ab:-[]{}&*!|>'\"%@`,?# \n0~<=\\$", max_size=30),
    at=st.integers(0, len(SMALLEST)),
    cut=st.integers(0, 30),
)
def test_any_edit_of_a_definition_is_a_definition_or_a_definition_error(
    tmp_path_factory: pytest.TempPathFactory, text: str, at: int, cut: int
) -> None:
    """No edit ends in a stack trace."""
    file = tmp_path_factory.getbasetemp() / "edited.yaml"
    file.write_text(SMALLEST[:at] + text + SMALLEST[at + cut :], encoding="utf-8")
    with contextlib.suppress(DefinitionError):
        load(file, environment={}, kinds=TOYS)


@pytest.mark.promise("CD-19")
def test_a_merge_without_an_order_needs_one_lane(tmp_path: Path) -> None:
    """Several lanes have no common order. So the merge needs a column that shows which row is later."""
    text = (
        "name: orders\norigin: {generate: {}, lanes: 2}\n"
        "destinations: [delta: {path: orders, mode: merge, keys: [id]}]\n"
    )
    (tmp_path / "orders.yaml").write_text(text)
    with pytest.raises(DefinitionError, match=r"destinations\[0\].*2 lanes have no common order"):
        load(tmp_path / "orders.yaml")
    (tmp_path / "orders.yaml").write_text(text.replace("[id]", "[id], sequence_by: at"))
    assert load(tmp_path / "orders.yaml").pipeline.destinations[0].ordered is False


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ("destinations: [{delta: {path: 's3://bucket/orders', mode: merge, keys: [id]}}]", "destinations[0].path"),
        ("destinations: [{delta: {path: 's3://bucket/orders', partition_by: [id]}}]", "destinations[0].path"),
        ("destinations: [{delta: {path: orders}}]\nstate: s3://bucket/state", "state"),
        ("destinations: [{delta: {path: orders}}]\ndlq: {delta: {path: 's3a://bucket/dlq'}}", "dlq"),
    ],
)
def test_runs_that_share_a_table_on_s3_need_a_lock(tmp_path: Path, change: str, place: str) -> None:
    """Without a lock, Spark may replace another run's commit. Delta's log store for DynamoDB has a lock."""
    text = f"name: orders\norigin: {{generate: {{}}}}\n{change}\n"
    shared = f"{text}run: {{assignment: round_robin}}\n"
    file = tmp_path / "orders.yaml"
    file.write_text(shared)
    with pytest.raises(DefinitionError) as caught:
        load(file)
    (problem,) = caught.value.problems
    assert (problem.path, "not on S3" in problem.message) == (place, True)
    locked = "spark: {conf: {spark.delta.logStore.s3a.impl: io.delta.storage.S3DynamoDBLogStore}}\n"
    for fine in (text, shared + locked, shared.replace("s3a://", "gs://").replace("s3://", "gs://")):
        file.write_text(fine)
        assert load(file).pipeline.name == "orders"


SHARED = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long"%s}
  read: %s
destinations:
  - delta: {path: tables/orders, mode: %s}
run: {assignment: round_robin}
"""


@pytest.mark.promise("CN-26")
@pytest.mark.parametrize(
    ("option", "read", "mode", "said"),
    [
        ("", "whole", "append", "origin.read: expected new where run.assignment is round_robin"),
        (", on_change: {extra: evolve}", "new", "append", "origin: expected fixed columns"),
        ("", "new", "replace", "destinations[0].mode: expected append or merge"),
    ],
)
def test_options_that_runs_cannot_share_are_refused_for_shared_lanes(
    tmp_path: Path, option: str, read: str, mode: str, said: str
) -> None:
    """The problem has the option's path."""
    file = tmp_path / "orders.yaml"
    file.write_text(SHARED % (option, read, mode), encoding="utf-8")
    with pytest.raises(DefinitionError) as caught:
        load(file)
    assert [problem for problem in map(str, caught.value.problems) if said in problem]
