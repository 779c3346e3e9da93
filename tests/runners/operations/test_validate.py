"""What `validate` prints about a definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from destinations.delta import Delta
from destinations.destination import Destination
from destinations.files import Files as ToFiles
from origins.delta import Delta as FromDelta
from origins.files import Files
from origins.origin import Origin
from runners.definitions.definition import definition_of, load
from runners.definitions.document import DefinitionError
from runners.model.clock import Clock
from runners.model.spec import SparkOptions
from runners.operations.printing import format_explanation
from runners.operations.validate import Explanation, explain
from runners.pipeline import Pipeline
from stages.deduplicate import Deduplicate
from stages.pinned_table import PinnedTable
from tests.manual_clock import ManualClock
from tests.runners.engine.toys import TOYS

Explained = Callable[..., Explanation]
AT_NOON = ManualClock(time=datetime(2026, 3, 27, 12, tzinfo=timezone.utc))


@pytest.fixture
def explained(tmp_path: Path) -> Explained:
    """A function that explains a definition with these parts."""

    def explained(
        more: str = "",
        destinations: str = "table: {table: main.orders}",
        origin: str = "",
        clock: Clock = AT_NOON,
    ) -> Explanation:
        file = tmp_path / "orders.yaml"
        file.write_text(
            f"name: orders\norigin:\n  folder: {{path: landing}}\n{origin}destinations:\n  - {destinations}\n{more}"
        )
        return explain(load(file, environment={"KEY": "hunter2", "PIN": "47x1"}, kinds=TOYS), TOYS, clock)

    return explained


def test_each_destination_has_its_guarantee(explained: Explained) -> None:
    """It has the words of the kind, and the place of the rows."""
    said = explained(destinations="table: {table: main.orders}\n  - say: {}\n    stages: [keep: a]")
    assert [(each["name"], each["kind"], each["place"], each["stages"]) for each in said.destinations] == [
        ("orders", "table", "main.orders", []),
        ("say", "say", "", ["keep"]),
    ]
    assert said.destinations[0]["guarantee"] == "effectively once: the table remembers"
    assert said.destinations[1]["guarantee"].startswith("at least once")


def test_protected_columns_are_noted(explained: Explained) -> None:
    """The note states where the values are stored."""
    (note,) = explained("protect: [email, iban]\n").notes
    assert note.startswith("The values of email, iban are masked in every output; the DLQ keeps them")
    assert explained().notes == ()


@pytest.mark.promise("SS-13")
def test_a_restart_is_explained(explained: Explained) -> None:
    """A run continues after the last committed batch, or from the beginning with an option."""
    said = " ".join(explained().restart)
    assert "after the last committed batch" in said
    assert "--from-beginning" in said


@pytest.mark.parametrize(
    ("dlq", "sentences"),
    [
        ("", ["The first refused row stops the run", "--set dlq.window=0", "To make it permanent"]),
        ("{window: 1000}", ["The first refused row stops the run", "--set dlq.window=0", "To make it permanent"]),
        ("{window: 0}", ["Refused rows never stop a run; they go to a table in the state"]),
        ("{window: 0, discard: {}}", ["Refused rows never stop a run; they are counted and discarded"]),
        ("{window: 1000, threshold: 50}", ["Refused rows go to a table in the state", "50 of the last 1,000 rows"]),
        ("{window: 9, threshold: 2, table: {table: a.b}}", ["Refused rows go to a.b", "2 of the last 9 rows"]),
        ("{window: 9, threshold: 2, say: {}}", ["Refused rows go to dlq", "2 of the last 9 rows"]),
        (
            "{window: 0, on_failure: fallback, fallback: {table: {table: a.b}}}",
            ["refused rows wait in a.b (wherry dlq merge)", "Refused rows never stop a run"],
        ),
    ],
)
def test_the_rule_for_refused_rows_is_explained(explained: Explained, dlq: str, sentences: list[str]) -> None:
    """It also names the place of the rows. With the default window it lists the alternatives."""
    said = explained(f"dlq: {dlq}\n" if dlq else "").dead_letters
    assert len(said) == len(sentences)
    assert all(part in sentence for part, sentence in zip(sentences, said, strict=True))


@pytest.mark.promise("SS-22")
def test_the_rule_of_a_stage_for_refused_rows_is_explained(explained: Explained) -> None:
    """The stage may be at any place. For a stage without a rule, the window applies."""
    stages = "stages: [{keep: a, on_error: stop}, {keep: b, when: 'c > 0', on_error: nack}]\n"
    said = explained(stages, destinations="say: {}\n    stages: [{keep: d, name: last, on_error: discard}]")
    assert said.dead_letters[3:] == (
        "A row that keep refuses stops the run, even if the window allows it.",
        "A row that last refuses is discarded and counts as filtered.",
    )


@pytest.mark.promise("SS-22")
def test_an_invalid_option_of_a_stage_is_reported_with_its_line(tmp_path: Path) -> None:
    """The problem has the option's path and its line in the file."""
    file = tmp_path / "orders.yaml"
    file.write_text(
        "name: orders\norigin:\n  folder: {path: landing}\ndestinations:\n  - say: {}\n"
        "stages:\n  - keep: a\n    on_error: drop\n  - keep: b\n    when: 'a = (select 1)'\n"
    )
    with pytest.raises(DefinitionError) as error:
        load(file, kinds=TOYS)
    assert [(each.path, each.line) for each in error.value.problems] == [("stages[0].on_error", 8)]
    file.write_text(file.read_text().replace("drop", "stop"))
    with pytest.raises(DefinitionError) as error:
        load(file, kinds=TOYS)
    assert [(each.path, each.line) for each in error.value.problems] == [("stages[1].when", 10)]


@pytest.mark.promise("SS-03")
@pytest.mark.parametrize(
    ("batch", "sentences"),
    [
        ("{rows: 1, files: null}", ["A batch holds at most 1 row."]),
        ("{rows: 5, files: 1}", ["A batch holds at most 5 rows and 1 file."]),
        ("{rows: null, files: null}", ["A batch holds all waiting rows of its lane."]),
        (
            "{rows: null, files: null, bytes: 1MiB}",
            [
                "A batch holds all waiting rows of its lane.",
                "run.batch.bytes has no effect: only files and rows can limit a batch of folder.",
            ],
        ),
    ],
)
def test_the_limits_of_a_batch_are_explained(explained: Explained, batch: str, sentences: list[str]) -> None:
    """A limit that has no effect on the origin is named."""
    said = explained(f"run: {{batch: {batch}}}\n").batches
    assert said[:-1] == tuple(sentences)


def test_a_whole_batch_is_explained(tmp_path: Path) -> None:
    """No limit applies to it. A `deduplicate` before a table that is replaced then sees every row."""
    file = tmp_path / "orders.yaml"
    text = (
        "name: orders\norigin: {files: {path: landing, format: text}, batch: whole}\n"
        "stages: [deduplicate: {keys: [value], sequence_by: value}]\n"
        "destinations: [delta: {path: t, mode: replace}]\nrun: {batch: {files: 7}}\n"
    )
    file.write_text(text)
    whole = explain(load(file))
    assert whole.batches[:2] == (
        "A batch holds all waiting rows of its lane.",
        "run.batch.files has no effect: nothing can limit a batch of files.",
    )
    file.write_text(text.replace(", batch: whole", ""))
    limited = explain(load(file))
    assert limited.batches[0] == "A batch holds at most 1GiB and 7 files."
    twice = "stage 'deduplicate' sees one batch at a time, but 'files' may give several batches."
    assert [twice in " ".join(said.notes) for said in (whole, limited)] == [False, True]


@pytest.mark.promise("SS-14", "SS-15")
@pytest.mark.parametrize(
    ("run", "lanes", "sentence"),
    [
        ("{}", 1, "1 lane: at most 1 batch at a time."),
        ("{runners: 2}", 3, "3 lanes: at most 2 batches at a time."),
        ("{runners: 3, max_in_flight: 2}", 4, "4 lanes: at most 2 batches at a time."),
        ("{runners: 8}", 2, "2 lanes: at most 2 batches at a time."),
    ],
)
def test_the_number_of_concurrent_batches_is_explained(
    explained: Explained, run: str, lanes: int, sentence: str
) -> None:
    """It is the least of runners, lanes and max_in_flight."""
    assert explained(f"run: {run}\n", origin=f"  lanes: {lanes}\n").batches[-1] == sentence


@pytest.mark.parametrize(
    ("lanes", "table", "run", "sentence"),
    [
        (20, "{path: t}", "{runners: 2}", "are written together, up to 16; at most 2 writes at a time."),
        (4, "{path: t}", "{max_in_flight: 2, runners: 1}", "are written together, up to 2; at most 1 write at a time."),
        (2, "{path: t, stamp: batch}", "{runners: 2}", "2 lanes: at most 2 batches at a time."),
    ],
)
def test_lanes_that_are_written_together_are_explained(
    tmp_path: Path, lanes: int, table: str, run: str, sentence: str
) -> None:
    """Up to sixteen batches share a write, or max_in_flight batches. They do not if a destination needs a write for
    each.
    """
    file = tmp_path / "orders.yaml"
    file.write_text(
        f"name: orders\norigin: {{files: {{path: landing, format: text}}, lanes: {lanes}}}\n"
        f"destinations: [delta: {table}]\nrun: {run}\n"
    )
    assert explain(load(file)).batches[-1].endswith(sentence)


def test_runners_that_have_no_work_are_noted(explained: Explained) -> None:
    """These are runners beyond the lanes, and beyond max_in_flight."""
    notes = explained("run: {runners: 3, max_in_flight: 2}\n", origin="  lanes: 2\n").notes
    assert notes == (
        "run.runners is 3, but a lane has one batch at a time, and there are 2 lanes.",
        "run.runners is 3, but run.max_in_flight allows only 2.",
    )


@pytest.mark.parametrize(
    ("more", "destinations", "because"),
    [
        ("stages: [keep: a]\n", "table: {table: a}", ()),
        ("stages: [call: f]\n", "table: {table: a}", ("call may answer differently when it is run again",)),
        ("", "table: {table: a}\n    stages: [call: f]", ("a/call may answer differently when it is run again",)),
        ("", "say: {}", ("say cannot say whether it has a batch",)),
        ("", "table: {table: a}\n  - say: {}", ("there are 2 destinations",)),
        ("keep_filtered: 30d\n", "table: {table: a}", ()),
        (
            "keep_filtered: 30d\nstages: [keep: a]\n",
            "table: {table: a}",
            ("keep_filtered stores the rows that stages filter",),
        ),
    ],
)
def test_the_reasons_why_a_batch_is_prepared_are_explained(
    explained: Explained, more: str, destinations: str, because: tuple[str, ...]
) -> None:
    """A batch is written straight if it can be computed again, and the destination can be asked for it."""
    said = explained(more, destinations)
    assert (said.way, said.because) == ("prepared" if because else "straight", because)


def test_kept_filtered_rows_are_noted(explained: Explained) -> None:
    """The note has the time, and the command that searches the rows."""
    (note,) = explained("keep_filtered: 12h\n").notes
    assert note == "Wherry keeps filtered rows in the state for 12h; wherry find searches them."


def test_the_ways_of_batches_are_listed(explained: Explained) -> None:
    """Each way that cannot be used has a reason."""
    said = explained("stages: [call: f]\n", "table: {table: a}").ways
    assert {way for way, why in said.items() if not why} == {"apart", "written"}
    assert said["straight"] == said["grouped"] == "call may answer differently when it is run again"


@pytest.mark.promise("SS-08", "SS-09")
def test_when_an_offset_is_committed_is_explained(explained: Explained) -> None:
    """It is committed after all destinations have the batch, or after one has."""
    two = "table: {table: a}\n  - say: {}"
    assert "when all destinations and the DLQ have the batch" in explained("", two).delivery
    assert "as soon as one destination and the DLQ" in explained("delivery: after_any\n", two).delivery
    assert explained().delivery == "The offset is committed when orders and the DLQ have the batch."


def test_the_place_of_the_state_is_shown(explained: Explained, tmp_path: Path) -> None:
    """It is a directory, or tables of a schema. A directory that does not exist yet is marked."""
    assert explained().state == f"{tmp_path}/.wherry/orders (created by the first run)"
    (tmp_path / ".wherry" / "orders").mkdir(parents=True)
    assert explained().state == f"{tmp_path}/.wherry/orders"
    assert explained("state: {schema: main.wherry}\n").state.startswith("main.wherry.orders_ledger")


@pytest.mark.parametrize(
    ("path", "noted"), [("tables/orders", True), ("file:///orders", True), ("s3://bucket/orders", False)]
)
def test_a_table_on_a_local_disk_is_noted(explained: Explained, path: str, noted: bool) -> None:
    """On a local disk, two programs that write to the table may lose each other's rows."""
    notes = explained(destinations=f"table: {{path: '{path}'}}").notes
    assert bool(notes) is noted
    assert ("only Wherry may write to orders" in " ".join(notes)) is noted


@pytest.mark.promise("CN-22")
def test_a_pipeline_without_ownership_is_noted(explained: Explained) -> None:
    """The note states that the scheduler must then prevent two runs at once."""
    assert explained().notes == ()
    assert "Let your scheduler prevent that" in " ".join(explained("run: {ownership: off}\n").notes)


def test_the_explanation_shows_no_secret(explained: Explained) -> None:
    """It shows the reference of the secret instead."""
    said = explained(destinations="table: {table: 'main.${secret:KEY}'}")
    assert said.destinations[0]["place"] == "main.${secret:KEY}"
    assert "hunter2" not in str(said.json())


def test_hooks_are_explained(explained: Explained) -> None:
    """It shows when each is called and its command or function, but no address."""
    hooks = """hooks:
  - {on: [failure, stop], python: "alerts:page"}
  - {on: refused, command: [notify, --urgent]}
  - {on: start, webhook: "https://example.com/hunter2"}
"""
    said = explained(hooks).hooks
    assert [line.partition(":")[0] for line in said] == ["on failure, stop", "on refused", "on start"]
    assert said[0].endswith("alerts:page")
    assert said[1:] == ("on refused: notify --urgent", "on start: a webhook")


def test_the_explanation_is_printed_in_a_column_of_headings(
    explained: Explained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths below the working directory are shortened, and commands are not wrapped. No line is wider than the
    terminal.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    text = format_explanation(explained("stages: [keep: a, call: f]\n", "table: {path: tables/orders}"), "orders.yaml")
    lines = text.splitlines()
    assert lines[0] == "The definition of orders is valid."
    assert "flow          landing → keep, call → orders" in lines
    assert "delivers      orders to tables/orders, effectively once: the table remembers." in lines
    assert any("wherry validate orders.yaml --spark" in line for line in lines)
    assert max(map(len, lines)) <= 80
    assert str(tmp_path) not in text


@pytest.mark.promise("SS-04")
def test_the_wait_for_more_rows_is_explained(explained: Explained) -> None:
    """It is shown only if a batch waits."""
    assert (
        "With --follow, a batch that is not full waits 10s for more"
        in explained("run: {batch: {wait: 10s}}\n").batches[1]
    )
    assert not any("waits" in sentence for sentence in explained().batches)


@pytest.mark.parametrize(("lanes", "noted"), [(1, False), (2, True)])
def test_deduplication_against_a_table_is_noted_with_several_lanes(lanes: int, noted: bool) -> None:
    """The stage is a destination's stage here."""
    stage = Deduplicate(keys=["id"], sequence_by="at", against=PinnedTable(table="main.orders"))
    pipeline = Pipeline(
        name="orders",
        origin=Files(path="landing/*.json", format="json", lanes=lanes),
        destinations=[Delta(table="main.orders", stages=[stage])],
    )
    notes = " ".join(explain(definition_of(pipeline)).notes)
    assert ("deduplicate: it sees one batch at a time" in notes) is noted


def test_a_schedule_shows_its_next_three_times(explained: Explained) -> None:
    """They are in the schedule's time zone, with the difference to UTC."""
    said = explained('schedule: {cron: "30 2 * * *", time_zone: Europe/Berlin, catch_up: none}\n', clock=AT_NOON)
    assert said.schedule == (
        "`wherry schedule` runs it at '30 2 * * *' (Europe/Berlin). A run that is due before another has ended is "
        "left out; runs that were due in a pause are left out.",
        "Next: Sat 2026-03-28 02:30:00 +0100, Sun 2026-03-29 03:00:00 +0200, Mon 2026-03-30 02:30:00 +0200",
    )
    assert said.next == ("2026-03-28T01:30:00+00:00", "2026-03-29T01:00:00+00:00", "2026-03-30T00:30:00+00:00")


def test_a_schedule_after_another_pipeline_names_it(explained: Explained) -> None:
    """It has no next times."""
    said = explained("schedule: {after: prices, on_overlap: queue, jitter: 30s}\n", clock=AT_NOON)
    assert said.schedule == (
        "`wherry schedule` runs it after each run of prices that succeeded, each up to 30s later. A run that is due "
        "before another has ended waits for it; runs that were due in a pause become one run.",
    )
    assert said.next == ()


def test_a_missing_folder_of_an_origin_is_noted(tmp_path: Path) -> None:
    """An empty folder has no note. A folder that only Spark can read is not checked."""

    def notes(path: str) -> tuple[str, ...]:
        pipeline = Pipeline(
            name="orders",
            origin=Files(path=path, format="csv", schema="id long", metadata=["file_name"]),
            destinations=[Delta(table="main.orders")],
        )
        return explain(definition_of(pipeline)).notes

    landing = tmp_path / "landing"
    assert notes(f"{landing}/*.csv") == (f"There is nothing at {landing} yet; a run fails until something is there.",)
    landing.mkdir()
    assert notes(f"{landing}/*.csv") == notes("s3a://bucket/landing/*.csv") == ()


@pytest.mark.parametrize(
    ("origin", "options", "noted"),
    [
        (Files(path="in", format="csv", schema="id long"), {"apply_as_deletes": "gone"}, True),
        (FromDelta(path="bronze"), {"apply_as_deletes": "gone", "sequence_by": "at"}, True),
        (FromDelta(path="bronze", changes=True), {"apply_as_deletes": "gone", "sequence_by": "at"}, False),
        (FromDelta(path="bronze"), {"sequence_by": "at"}, False),
    ],
)
def test_a_merge_that_forgets_deletes_is_noted(origin: Origin, options: dict[str, Any], noted: bool) -> None:
    """A late row adds its deleted key again. A change feed has no late rows."""
    merge = Delta(table="main.orders", mode="merge", keys=["id"], **options)
    notes = explain(definition_of(Pipeline(name="orders", origin=origin, destinations=[merge]))).notes
    late = "if an older row of a deleted key comes late from " + ("files" if isinstance(origin, Files) else "delta")
    assert (late in " ".join(notes)) is noted


@pytest.mark.parametrize(
    ("encoding", "conf", "noted"),
    [
        ("ISO-8859-1", {}, False),
        ("windows-1252", {}, True),
        ("windows-1252", {"spark.sql.legacy.javaCharsets": "true"}, False),
    ],
)
def test_an_encoding_that_spark_does_not_read_is_noted(
    tmp_path: Path, encoding: str, conf: Mapping[str, str], noted: bool
) -> None:
    """The note has the line that lets Spark read it."""
    origin = Files(path=str(tmp_path), format="csv", schema="id long", options={"encoding": encoding})
    pipeline = Pipeline(
        name="orders", origin=origin, destinations=[Delta(table="main.orders")], spark=SparkOptions(conf=conf)
    )
    notes = explain(definition_of(pipeline)).notes
    assert ("`spark: {conf: {spark.sql.legacy.javaCharsets: true}}`" in " ".join(notes)) is noted


def test_an_unreadable_origin_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user has no right to read the folder."""
    monkeypatch.setattr("origins.files.listing.os.access", lambda *_: False)
    origin = Files(path=f"{tmp_path}/*.csv", format="csv", schema="id long", metadata=["file_name"])
    pipeline = Pipeline(name="orders", origin=origin, destinations=[Delta(table="main.orders")])
    (note,) = explain(definition_of(pipeline)).notes
    assert note == f"This user has no right to read {tmp_path}; a run fails without it."


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, ["added", "both"]),
        ({"metadata": ["file_name"]}, []),
        ({"metadata": ["file_path", "file_size"]}, []),
        ({"metadata": ["file_size"]}, ["added", "both"]),
        ({"read": "whole"}, []),
    ],
)
def test_tables_that_a_redo_of_a_file_could_not_find_its_rows_in_are_noted(
    given: Mapping[str, Any], named: list[str]
) -> None:
    """Other destinations need no column with the file, or a redo cannot replace rows there."""
    rest: list[Destination] = [
        Delta(table="main.merged", mode="merge", keys=["id"]),
        Delta(table="main.replaced", mode="replace"),
        Delta(table="main.stamped", stamp="_batch"),
        ToFiles(path="out"),
    ]
    destinations = [Delta(table="main.a", name="added"), *rest, Delta(table="main.b", name="both")]
    origin = Files(path="in/*.csv", format="csv", schema="id long", **given)
    pipeline = Pipeline(name="orders", origin=origin, destinations=destinations)
    found = [each for each in explain(definition_of(pipeline)).notes if "wherry redo" in each]
    needs = "`wherry redo` needs `metadata: [file_name]` at files before the first run into"
    assert found == [f"{needs} {' and '.join(named)}."] * bool(named)
