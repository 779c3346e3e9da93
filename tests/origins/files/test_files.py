"""Which files make a batch in the origin `files`, and which rows their lines give."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from origins.batch import JSON, Batch, Limits, Span
from origins.errors import OriginError
from origins.files import Files
from origins.files.listing import list_files
from origins.nack import REFUSED
from origins.origin import BATCH, PLACE, Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark
ODD_NAMES = [
    "a b.json",
    "grün.json",
    "100%.json",
    "a%20b.json",
    "a+b.json",
    "a#b.json",
    "2026-01-01T10:00:00.json",
    "[ab].json",
    "{a,b}.json",
    "*.json",
    "a?.json",
    "back\\slash.json",
    "new\nline:.json",
    "\ttab\r.json",
    "it's.json",
    'say "x".json',
    "k=v/a.json",
    "😀.json",
]


def make_batch(span: Span, schema: str) -> Batch:
    """Return a batch of this span."""
    time = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return Batch(pipeline="p", run="r", origin="o", lane="0", number=1, plan="x", span=span, schema=schema, time=time)


def plan_batch(spark: SparkSession, files: Files, limits: Limits | None = None, parts: Sequence[JSON] = ()) -> Batch:
    """Return the first batch of lane 0."""
    backlog = files.survey(spark, Progress(parts=parts))
    span = backlog.take("0", None, limits or Limits())
    schema = files.columns(spark, backlog)
    assert span is not None
    assert schema is not None
    return make_batch(span, schema)


def read_waiting(spark: SparkSession, files: Files) -> DataFrame:
    """Return all waiting rows with their places, as Spark reads them."""
    return read_by_spark(spark, files, plan_batch(spark, files), places=True)


def read_by_spark(spark: SparkSession, files: Files, batch: Batch, *, places: bool = False) -> DataFrame:
    """Return the rows as Spark reads them, although they are few."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("origins.files.files.is_one_disk", lambda _: False)
        return files.fetch(spark, [batch], places=places).frame()


def take_batches(
    spark: SparkSession, files: Files, limits: Limits, progress: Progress | None = None
) -> list[list[str]]:
    """Return the names of the files in each batch of lane 0."""
    backlog, found, start = files.survey(spark, progress or Progress()), [], None
    while span := backlog.take("0", start, limits):
        found.append([name for _, name, _ in list_files(span.parts)])
        start = span.end
    return found


def write_files(folder: Path, sizes: Mapping[str, int]) -> None:
    """Write files of these sizes, each a second newer than the one before."""
    for age, (name, size) in enumerate(sizes.items()):
        (folder / name).write_text("x" * size)
        os.utime(folder / name, (age, age))


class TestBatches:
    """The files of a batch."""

    @pytest.mark.promise("SS-03", "HP-16")
    def test_a_batch_is_full_when_one_more_file_would_be_too_much(self, spark: SparkSession, tmp_path: Path) -> None:
        """Files and bytes limit a batch. A file is never split, and a file over the limit is a single batch."""
        write_files(tmp_path, {"c": 2, "b": 3, "a": 9, "d": 1})
        files, apart = Files(path=str(tmp_path), format="text"), [["c"], ["b"], ["a"], ["d"]]
        every = {
            Limits(): [["c", "b", "a", "d"]],
            Limits(rows=1): [["c", "b", "a", "d"]],
            Limits(files=1): apart,
            Limits(files=3): [["c", "b", "a"], ["d"]],
            Limits(bytes=5): [["c", "b"], ["a"], ["d"]],
            Limits(bytes=1): apart,
            Limits(files=2, bytes=100): [["c", "b"], ["a", "d"]],
        }
        assert {limits: take_batches(spark, files, limits) for limits in every} == every

    def test_max_files_limits_a_batch_beside_the_limits_of_the_run(self, spark: SparkSession, tmp_path: Path) -> None:
        """The lower limit applies."""
        write_files(tmp_path, {"a": 1, "b": 1, "c": 1})
        files = Files(path=str(tmp_path), format="text", max_files=2)
        assert take_batches(spark, files, Limits(files=3)) == [["a", "b"], ["c"]]
        assert take_batches(spark, files, Limits(files=1)) == [["a"], ["b"], ["c"]]

    @pytest.mark.promise("SS-11", "CD-27")
    def test_a_late_file_is_read_although_it_is_older_than_processed_files(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """Processed files are known by file, and not by the time of the last one."""
        write_files(tmp_path, {"late": 1, "first": 1, "second": 1})
        files = Files(path=str(tmp_path), format="text")
        progress = Progress(offsets={"0": {"file": "first", "modified": 1000}}, parts=[["first", 1, 1000]])
        assert take_batches(spark, files, Limits(), progress) == [["late", "second"]]

    def test_a_file_that_changed_is_reported_and_not_read_again(self, spark: SparkSession, tmp_path: Path) -> None:
        """Its rows would be delivered twice, so a user must decide."""
        write_files(tmp_path, {"a": 1})
        backlog = Files(path=str(tmp_path), format="text").survey(spark, Progress(parts=[["a", 99, 0]]))
        assert backlog.take("0", None, Limits()) is None
        assert backlog.notices == ["a changed after it was processed; Wherry does not read it again"]

    @pytest.mark.promise("SS-14", "HP-01", "HP-20")
    def test_every_file_stays_in_one_lane(self, spark: SparkSession, tmp_path: Path) -> None:
        """New and removed files do not move another file to another lane."""
        write_files(tmp_path, {f"{number}": 1 for number in range(40)})
        files = Files(path=str(tmp_path), format="text", lanes=3)

        def lanes() -> dict[str, str]:
            backlog = files.survey(spark, Progress())
            spans = {lane: backlog.take(lane, None, Limits()) for lane in files.lane_names()}
            return {name: lane for lane, span in spans.items() if span for _, name, _ in list_files(span.parts)}

        before = lanes()
        (tmp_path / "0").unlink()
        assert sorted(before, key=int) == [str(number) for number in range(40)]
        assert set(before.values()) == {"0", "1", "2"}
        assert lanes() == {name: lane for name, lane in before.items() if name != "0"}

    def test_an_empty_folder_has_an_empty_backlog(self, spark: SparkSession, tmp_path: Path) -> None:
        """It causes no error, and no schema can be inferred."""
        files = Files(path=str(tmp_path), format="csv")
        backlog = files.survey(spark, Progress())
        assert backlog.take("0", None, Limits()) is None
        assert files.columns(spark, backlog) is None


def write_oddly_named(tmp_path: Path) -> Files:
    """Write files with unusual names, each with its name as its only row."""
    folder = tmp_path / "in put ü%"
    for name in ODD_NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps({"name": name}))
    return Files(path=f"{folder}/**", format="json", schema="name string")


class TestNames:
    """Files with unusual names."""

    def test_a_file_of_any_name_is_read(self, spark: SparkSession, tmp_path: Path) -> None:
        """Special characters of Spark and of URLs are taken literally, and the place names the file."""
        files = write_oddly_named(tmp_path)
        rows = read_waiting(spark, files).select("name", PLACE).collect()
        assert sorted((row["name"], row[PLACE].part) for row in rows) == sorted((name, name) for name in ODD_NAMES)
        assert sorted(files.parts(plan_batch(spark, files))) == sorted(ODD_NAMES)

    def test_files_of_any_names_are_distinguished_by_name(self, spark: SparkSession, tmp_path: Path) -> None:
        """Several batches with a file each are read in one frame, and each row has the number of its batch."""
        files = write_oddly_named(tmp_path)
        whole = plan_batch(spark, files)
        parts = whole.span.parts
        batches = [replace(whole, span=replace(whole.span, parts=(each,))) for each in parts]
        assert files.joins(batches)
        found = {row[BATCH]: row["name"] for row in files.fetch(spark, batches).frame().collect()}
        assert found == {at: name for at, (_, name, _) in enumerate(list_files(parts))}
        assert sorted(found.values()) == sorted(ODD_NAMES)

    @pytest.mark.parametrize("names", [["a", "a"], [f"{number}.json" for number in range(257)]])
    def test_batches_that_share_a_file_or_have_too_many_files_are_fetched_separately(
        self, names: Sequence[str]
    ) -> None:
        """Their rows could not be distinguished, or only by a query that is too long."""
        spans = [Span(start=None, end=1, parts=((name, 1, 1),)) for name in names]
        files = Files(path="/in/*", format="json", schema="id int")
        assert not files.joins([make_batch(span, "{}") for span in spans])

    def test_links_and_folders_named_like_files_are_read(self, spark: SparkSession, tmp_path: Path) -> None:
        """Each file is read once, under the name at which it was found."""
        names = ["out/a", "in/x.json/b", "in/x.json/c.json"]
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(json.dumps({"name": name}))
        (tmp_path / "in" / "link.json").symlink_to(tmp_path / "out" / "a")
        (tmp_path / "in" / "folder.json").symlink_to(tmp_path / "out")
        files = Files(path=f"{tmp_path}/in/*.json", format="json", schema="name string")
        rows = read_waiting(spark, files).select("name", PLACE).collect()
        assert sorted((row[PLACE].part, row["name"]) for row in rows) == [
            ("folder.json/a", "out/a"),
            ("link.json", "out/a"),
            ("x.json/b", "in/x.json/b"),
            ("x.json/c.json", "in/x.json/c.json"),
        ]

    def test_files_outside_the_batch_are_not_read(self, spark: SparkSession, tmp_path: Path) -> None:
        """This holds even if their names would match a name in the batch taken as a pattern."""
        for name in ("[ab].json", "a.json", "*.json", "2026:01.json"):
            (tmp_path / name).write_text(f'{{"id": "{name}"}}')
            os.utime(tmp_path / name, (len(name), len(name)))
        files = Files(path=str(tmp_path), format="json", schema="id string")
        first = plan_batch(spark, files, Limits(files=2))
        assert sorted(row.id for row in files.fetch(spark, [first]).frame().collect()) == ["*.json", "a.json"]
        second = plan_batch(spark, files, Limits(files=1), first.span.parts)
        assert [row.id for row in files.fetch(spark, [second]).frame().collect()] == ["[ab].json"]


class TestPlaces:
    """The places of rows."""

    @pytest.mark.promise("X2")
    @pytest.mark.parametrize("kind", ["json", "csv"])
    def test_rows_of_a_block_are_numbered_in_their_order(self, spark: SparkSession, tmp_path: Path, kind: str) -> None:
        """This also holds if files are split over tasks."""
        spark.conf.set("spark.sql.files.maxPartitionBytes", "2000")
        spark.conf.set("spark.sql.files.openCostInBytes", "1")
        lines = {"json": '{{"id": {}}}', "csv": "{}"}[kind]
        for name, first in (("a", 0), ("b", 1000), ("c", 2000)):
            text = "\n".join(lines.format(number) for number in range(first, first + 1000))
            (tmp_path / name).write_text("id\n" * (kind == "csv") + text)
        frame = read_waiting(spark, Files(path=str(tmp_path), format=kind, schema="id int"))
        rows = frame.selectExpr("id", f"{PLACE}.*").collect()
        in_order = sorted(rows, key=lambda row: (row.part, row.block, row.row))
        assert len({(row.part, row.block) for row in rows}) > 3
        assert [row.id for row in in_order] == list(range(3000))
        assert all(
            later.row == row.row + 1
            for row, later in pairwise(in_order)
            if (row.part, row.block) == (later.part, later.block)
        )

    def test_places_are_added_only_on_request(self, spark: SparkSession, tmp_path: Path) -> None:
        """A clean batch does not need them."""
        (tmp_path / "a").write_text('{"id": 1}')
        files = Files(path=str(tmp_path), format="json", schema="id int")
        assert read_by_spark(spark, files, plan_batch(spark, files)).columns == ["id", REFUSED]
        assert read_waiting(spark, files).columns == ["id", REFUSED, PLACE]


class TestPlanned:
    """A batch is read as planned, or not at all."""

    @pytest.mark.promise("SS-23")
    @pytest.mark.parametrize(
        ("happens", "says"),
        [
            (lambda file: file.unlink(), "is gone since its batch was planned"),
            (lambda file: file.write_text('{"id": 12}'), r"has changed \(it had 9 bytes and now has 10\)"),
            (
                lambda file: os.utime(file, (7, 7)),
                r"has changed \(it was written at 20.*, and written again or copied at 1970-01-01 00:00:07",
            ),
        ],
    )
    def test_a_file_that_changed_after_planning_is_an_error(
        self, spark: SparkSession, tmp_path: Path, happens: Callable[[Path], object], says: str
    ) -> None:
        """Nothing of the batch is read, and the error names the file."""
        file = tmp_path / "a.json"
        file.write_text('{"id": 1}')
        files = Files(path=str(tmp_path), format="json", schema="id int")
        plan = plan_batch(spark, files)
        happens(file)
        with pytest.raises(OriginError, match=rf"a\.json {says}"):
            files.fetch(spark, [plan]).frame()
        with pytest.raises(OriginError, match=rf"a\.json {says}"):
            files.fetch(spark, [replace(plan, span=replace(plan.span, parts=())), plan]).frame()

    @pytest.mark.parametrize(
        ("name", "content", "kind"),
        [
            ("cut.json.gz", gzip.compress(os.urandom(50_000).hex().encode())[:20_000], "json"),
            ("bad.parquet", b"PAR1 and then nothing that makes sense PAR1", "parquet"),
        ],
    )
    def test_a_file_that_cannot_be_read_fails_by_name(
        self, spark: SparkSession, tmp_path: Path, name: str, content: bytes, kind: str
    ) -> None:
        """The batch fails and no row is refused. The error names the file."""
        (tmp_path / name).write_bytes(content)
        with pytest.raises(Exception, match=name.replace(".", r"\.")) as error:
            read_waiting(spark, Files(path=str(tmp_path), format=kind, schema="id string")).collect()
        assert "FAILED_READ_FILE" in str(error.value) or "header" in str(error.value)


def list_refused(spark: SparkSession, files: Files) -> list[Row]:
    """Return the refusals in the order of the rows."""
    rows = read_waiting(spark, files).orderBy(f"{PLACE}.part", f"{PLACE}.block", f"{PLACE}.row").collect()
    return [row[REFUSED] for row in rows if row[REFUSED] is not None]


NO_OBJECT = "this line is not a JSON object whose values have the types of the schema"
BAD_JSON = {
    '{"id": "x"}': "column id: 'x' is not a bigint",
    '{"id": 1.5}': "column id: '1.5' is not a bigint",
    '{"id": true}': "column id: 'true' is not a bigint",
    '{"id": 99999999999999999999}': "column id: '99999999999999999999' is not a bigint",
    '{"amount": "sieben", "at": "now"}': "column amount: 'sieben' is not a decimal(10,2); "
    "column at: 'now' is not a timestamp",
    '{"amount": 12345678901}': "column amount: '12345678901' is not a decimal(10,2)",
    '{"amount": ""}': "column amount: '' is not a decimal(10,2)",
    '{"amount": "1,5"}': "column amount: '1,5' is not a decimal(10,2)",
    '{"amount": 1.505}': "column amount: '1.505' is not a decimal(10,2)",
    '{"amount": "15.05e-1"}': "column amount: '15.05e-1' is not a decimal(10,2)",
    '{"amount": "99999999.999"}': "column amount: '99999999.999' is not a decimal(10,2)",
    '{"parts": {"each": [1.5, 1.505]}}': "column parts: '{\"each\":[1.5,1.505]}' is not a "
    "struct<each:array<decimal(10,2)>>",
    '{"day": "17"}': "column day: '17' is not a date",
    '{"tags": "none"}': "column tags: 'none' is not an array<int>",
    '{"tags": [1, "x"]}': "column tags: '[1,\"x\"]' is not an array<int>",
    '{"id": "' + "y" * 200 + '"}': "column id: '" + "y" * 80 + "…' is not a bigint",
    '{"inner": {"a": "x"}}': NO_OBJECT,
    '{"id": 1': NO_OBJECT,
    '{"inner": {"a": 1}, "b": x}': NO_OBJECT,
    "id=1": NO_OBJECT,
    "null": NO_OBJECT,
    "[1]": "this line has more than one object; each needs a line of its own",
    '"text"': NO_OBJECT,
}


ANY_JSON = "id int, inner struct<s: string>, many array<struct<n: int>>"
ONE_OBJECT = [
    '{"id": 0}',
    '  {"id": 1} \t',
    '{"id": 2, "inner": {"s": "} x"}}',
    '{"inner": {"s": "\\"} { ]"}, "many": [{"n": 1}, {"n": 2}], "id": 3}',
    '{"many": [{"n": 1}], "other": {"d": [[{"e": {}}]]}, "id": 4}',
    '{"id": 5, "other": NaN, "inner": {}}',
    '{"id": 6, "x": [1], "inner": {"x": {}}}',
]
MORE_THAN_AN_OBJECT = [
    '{"id": 90}{"id": 91}',
    '{"id": 90} {"id": 91}',
    '{"id": 90}, {"id": 91}',
    '{"id": 90},',
    '{"id": 90} x',
    '{"id": 90}}',
    '{"id": 90}]',
    '{"id": 90}] }',
    '{"id": 90}}] {}',
    '{"id": 90}]}',
    '{"id": 90},"b": {}}',
    '{"id": 90, "inner": {"s": "a"}},"b": {"c": 1}}',
    '{"id": 90},0] {}',
    '{"id": 90}\\',
    '[{"id": 90}, {"id": 91}]',
    ' [{"id": 90}]',
    "[]",
]


class TestJson:
    """Lines of JSON."""

    @pytest.mark.promise("CD-16", "DQ-10")
    def test_a_line_that_does_not_fit_the_schema_is_refused(self, spark: SparkSession, tmp_path: Path) -> None:
        """No value becomes NULL.

        The reason names the file, the column, the value and the type, and contains the line.
        """
        (tmp_path / "part-1.json").write_text("\n".join(['{"id": 1}', *BAD_JSON, "", " ", '{"id": 3}']))
        schema = "id long, amount decimal(10,2), at timestamp, day date, tags array<int>, inner struct<a: int>"
        schema += ", parts struct<each: array<decimal(10,2)>>"
        files = Files(path=str(tmp_path), format="json", schema=schema)
        assert [nack.asDict() for nack in list_refused(spark, files)] == [
            {"code": "PARSE", "message": f"part-1.json: {message}", "raw": line} for line, message in BAD_JSON.items()
        ]
        good = [row.id for row in read_waiting(spark, files).where(f"{REFUSED} is null").collect()]
        assert good == [1, 3]

    def test_missing_keys_are_null_and_extra_keys_are_left_out(self, spark: SparkSession, tmp_path: Path) -> None:
        """This is no reason to refuse a row."""
        (tmp_path / "a").write_text('{"other": 1}\n{"id": null}\n{}\n')
        rows = read_waiting(spark, Files(path=str(tmp_path), format="json", schema="id int")).collect()
        assert [(row.id, row[REFUSED]) for row in rows] == [(None, None)] * 3

    def test_the_verdict_on_a_line_does_not_depend_on_the_used_columns(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """Spark parses only the requested columns, and the verdict requests all columns."""
        (tmp_path / "a").write_text('{"id": 1, "note": "a"}\n{"id": "x", "note": "b"}\n')
        files = Files(path=str(tmp_path), format="json", schema="id int, note string")
        frame = files.fetch(spark, [plan_batch(spark, files)]).frame()
        for used in (["id"], ["note"], []):
            rows = frame.selectExpr(*used, f"{REFUSED} is null as good").collect()
            assert [row.good for row in rows] == [True, False], used

    @pytest.mark.connect
    @pytest.mark.promise("CD-16")
    @pytest.mark.parametrize("places", [True, False])
    def test_a_line_with_more_than_an_object_is_refused(
        self, spark: SparkSession, tmp_path: Path, places: bool
    ) -> None:
        """A missing line break, an array, or other text loses no row without a message.

        Braces in text and inside the object have no effect.
        """
        (tmp_path / "a").write_text("\n".join([*ONE_OBJECT, "", " \t", *MORE_THAN_AN_OBJECT]), encoding="utf-8")
        files = Files(path=str(tmp_path), format="json", schema=ANY_JSON)
        rows = files.fetch(spark, [plan_batch(spark, files)], places=places).frame().collect()
        nacks = [row[REFUSED] for row in rows if row[REFUSED] is not None]
        assert {nack.raw for nack in nacks if "this line has more than one object" in nack.message} == set(
            MORE_THAN_AN_OBJECT
        )
        assert {nack.code for nack in nacks} == {"PARSE"}
        assert len({nack.raw for nack in nacks}) == len(MORE_THAN_AN_OBJECT)
        good = [row.id for row in rows if row[REFUSED] is None]
        assert set(range(len(ONE_OBJECT))) <= set(good)
        assert good == list(range(len(ONE_OBJECT))) or not places

    def test_a_file_with_more_than_one_value_is_refused_with_multi_line(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """JSON lines read as one value would lose all rows but the first."""
        good = {"a": '[{"id": 0},\n {"id": 1}]\n ', "b": '{"id":\n 2, "inner": {"s": "} x"}}', "c": "[]", "d": " \n"}
        bad = {
            "e": '{"id": 1}\n{"id": 2}\n', "f": '[{"id": 1}]\n[]', "g": '[{"id": 1}]]', "h": '{"id": 1}}',
            "i": '{"id": 1}, {"id": 2}', "j": '{"id": 1}]}',
        }  # fmt: skip
        for name, content in {**good, **bad}.items():
            (tmp_path / name).write_text(content)
        files = Files(path=str(tmp_path), format="json", schema=ANY_JSON, options={"multiLine": True})
        told = "this file is not one JSON object or one array of objects; without multiLine each line is one object"
        for places, named in ((True, True), (False, False)):
            rows = files.fetch(spark, [plan_batch(spark, files)], places=places).frame().collect()
            nacks = {(row[REFUSED].raw, row[REFUSED].message) for row in rows if row[REFUSED] is not None}
            assert nacks == {(content, f"{name}: {told}" if named else told) for name, content in bad.items()}
            assert {row.id for row in rows if row[REFUSED] is None} >= {0, 1, 2}

    @pytest.mark.parametrize(
        ("encoding", "separator"),
        [("ISO-8859-1", {}), ("UTF-16BE", {"lineSep": "\n"})],
    )
    def test_lines_in_another_encoding_are_read(
        self, spark: SparkSession, tmp_path: Path, encoding: str, separator: dict[str, str]
    ) -> None:
        """Spark's reader and the line parser both read them. Lines end with a line feed by default."""
        (tmp_path / "a").write_bytes('{"name": "Grün"}\n{"name": "ö"}{}\n'.encode(encoding))
        options = {"encoding": encoding, **separator}
        files = Files(path=str(tmp_path), format="json", schema="name string", options=options)
        for places in (True, False):
            rows = files.fetch(spark, [plan_batch(spark, files)], places=places).frame().collect()
            assert "Grün" in {row.name for row in rows if row[REFUSED] is None}
            assert [row[REFUSED].raw for row in rows if row[REFUSED]] == ['{"name": "ö"}{}']

    def test_options_apply_to_the_whole_line(self, spark: SparkSession, tmp_path: Path) -> None:
        """A comment after an object is accepted if comments are allowed."""
        (tmp_path / "a").write_text("{id: 1, 'inner': {}} // one\n/* two */ {id: 2} {id: 3}\n// none\n")
        options = {"allowComments": True, "allowUnquotedFieldNames": True}
        files = Files(path=str(tmp_path), format="json", schema="id int", options=options)
        rows = read_waiting(spark, files).collect()
        assert [row.id for row in rows if row[REFUSED] is None] == [1]
        assert [row[REFUSED].raw for row in rows if row[REFUSED]] == ["/* two */ {id: 2} {id: 3}"]

    def test_a_column_may_have_any_name(self, spark: SparkSession, tmp_path: Path) -> None:
        """The name may have dots, quotes, backticks and spaces, or be a name that Spark or Wherry uses."""
        names = ["a.b", "c d", "`", "'", '"', "ü", "_corrupt_record", "_metadata", "_line", "%s", "$x", "\\"]
        (tmp_path / "a").write_text(json.dumps(dict.fromkeys(names, "x")))
        files = Files(path=str(tmp_path), format="json", schema=dict.fromkeys(names, "int"))
        [nack] = list_refused(spark, files)
        assert nack.message == "a: " + "; ".join(f"column {name}: 'x' is not an int" for name in names)


BAD_CSV = {
    "x,1,a": "column id: 'x' is not an int",
    "1,sieben,a": "column amount: 'sieben' is not a decimal(10,2)",
    '1,"1,5",a': "column amount: '1,5' is not a decimal(10,2)",
    "1,123456789,a": "column amount: '123456789' is not a decimal(10,2)",
    "1,1.505,a": "column amount: '1.505' is not a decimal(10,2)",
    "1,1e-3,a": "column amount: '1e-3' is not a decimal(10,2)",
    "x,,a": "column id: 'x' is not an int",
    "x,y,a": "column id: 'x' is not an int; column amount: 'y' is not a decimal(10,2)",
    "1": "this line has 1 field, and 3 were expected",
    '1,"2,a"': "this line has 2 fields, and 3 were expected",
    '1,"say ""2,3""",a,b': "this line has 4 fields, and 3 were expected",
}


class TestCsv:
    """Lines of CSV."""

    def test_columns_are_found_by_the_names_in_the_header(self, spark: SparkSession, tmp_path: Path) -> None:
        """Each file may have another order, another case, and further columns."""
        (tmp_path / "a.csv").write_text("id,note,amount\n1,x,1.5\n")
        (tmp_path / "b.csv").write_text("\ufeffAmount, ID ,other\n2.5,2,y\n", encoding="utf-8")
        (tmp_path / "c.csv").write_text("")
        schema = {"id": "int", "amount": "decimal(10,1)"}
        rows = read_waiting(spark, Files(path=str(tmp_path), format="csv", schema=schema)).collect()
        assert sorted((row.id, str(row.amount), row[REFUSED]) for row in rows) == [(1, "1.5", None), (2, "2.5", None)]

    @pytest.mark.parametrize(
        ("header", "says"),
        [
            ("id,note", r"a\.csv has no column amount. Its header is: id, note"),
            ("id,amount,Amount", r"a\.csv has the column amount more than once"),
        ],
    )
    def test_a_header_without_a_required_column_is_an_error(
        self, spark: SparkSession, tmp_path: Path, header: str, says: str
    ) -> None:
        """No row is refused for it, and no column becomes NULL."""
        (tmp_path / "a.csv").write_text(f"{header}\n1,2,3\n")
        with pytest.raises(OriginError, match=says):
            read_waiting(spark, Files(path=str(tmp_path), format="csv", schema="id int, amount int"))

    def test_a_line_that_does_not_fit_the_schema_is_refused(self, spark: SparkSession, tmp_path: Path) -> None:
        """The reason names the file, the column and the value, and contains the original line."""
        (tmp_path / "a.csv").write_text("\n".join(["id,amount,note", "1,1,a", *BAD_CSV, "", "3,3,c"]))
        files = Files(path=str(tmp_path), format="csv", schema="id int, amount decimal(10,2), note string")
        assert [nack.asDict() for nack in list_refused(spark, files)] == [
            {"code": "PARSE", "message": f"a.csv: {message}", "raw": line} for line, message in BAD_CSV.items()
        ]
        good = [row.id for row in read_waiting(spark, files).where(f"{REFUSED} is null").collect()]
        assert good == [1, 3]

    def test_the_verdict_on_a_line_does_not_depend_on_the_used_columns(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """This holds for the number of fields and for the types."""
        (tmp_path / "a").write_text("id,note\n1,a\nx,b\n3\n4,d,e\n")
        files = Files(path=str(tmp_path), format="csv", schema="id int, note string")
        frame = files.fetch(spark, [plan_batch(spark, files)]).frame()
        for used in (["id"], ["note"], []):
            rows = frame.selectExpr(*used, f"{REFUSED} is null as good").collect()
            assert [row.good for row in rows] == [True, False, False, False], used

    def test_options_of_the_reader_apply(self, spark: SparkSession, tmp_path: Path) -> None:
        """The separator, encoding, comments, quotes and date formats apply to the header and the lines."""
        text = "# made by hand\nname;'day;of'\nJürgen;31.12.2026\nX;2026\n"
        (tmp_path / "a").write_text(text, encoding="iso-8859-1")
        options = {"sep": ";", "encoding": "ISO-8859-1", "comment": "#", "quote": "'", "dateFormat": "dd.MM.yyyy"}
        files = Files(path=str(tmp_path), format="csv", schema={"name": "string", "day;of": "date"}, options=options)
        rows = read_waiting(spark, files).collect()
        assert [(row.name, str(row["day;of"])) for row in rows] == [("Jürgen", "2026-12-31"), ("X", "None")]
        assert [nack.message for nack in list_refused(spark, files)] == ["a: column day;of: '2026' is not a date"]

    def test_compressed_files_have_headers_too(self, spark: SparkSession, tmp_path: Path) -> None:
        """Spark reads the header, since Python cannot decompress the file."""
        lines = spark.createDataFrame([("note,id",), ("x,1",)], "value string").coalesce(1)
        lines.write.option("compression", "deflate").text(f"{tmp_path}/out")
        rows = read_waiting(spark, Files(path=f"{tmp_path}/out", format="csv", schema="id int, note string")).collect()
        assert [(row.id, row.note) for row in rows] == [(1, "x")]


class TestSchemas:
    """The columns without a given schema."""

    @pytest.mark.parametrize(
        ("kind", "text", "schema"),
        [
            ("csv", "id,amount\n1,2\n", "struct<id:string,amount:string>"),
            ("json", '{"id": 1}\n{"id": 2, "amount": 1.5}\nbroken\n', "struct<amount:double,id:bigint>"),
            ("text", "a line", "struct<value:string>"),
        ],
    )
    def test_the_schema_is_inferred_from_the_files(
        self, spark: SparkSession, tmp_path: Path, kind: str, text: str, schema: str
    ) -> None:
        """CSV and text have columns of text. Spark infers JSON from all lines except the broken ones."""
        from pyspark.sql.types import StructType

        (tmp_path / "a").write_text(text)
        files = Files(path=str(tmp_path), format=kind)
        found = StructType.fromJson(json.loads(plan_batch(spark, files).schema))
        assert found.simpleString() == schema

    def test_parquet_files_with_different_columns_give_all_of_them(self, spark: SparkSession, tmp_path: Path) -> None:
        """A column that a file lacks is NULL in its rows."""
        spark.sql("select 1 as a").write.parquet(f"{tmp_path}/x.parquet")
        spark.sql("select 2 as a, 'y' as b").write.parquet(f"{tmp_path}/y.parquet")
        files = Files(path=f"{tmp_path}/*.parquet", format="parquet")
        assert sorted((row.a, row.b) for row in read_waiting(spark, files).collect()) == [(1, None), (2, "y")]

    def test_a_column_that_came_later_is_an_error_if_the_schema_was_inferred(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """Its values would be lost without a message."""
        (tmp_path / "a.csv").write_text("id\n1\n")
        files = Files(path=str(tmp_path), format="csv")
        schema = plan_batch(spark, files).schema
        (tmp_path / "a.csv").write_text("id,new\n1,2\n")
        span = plan_batch(spark, files).span
        with pytest.raises(OriginError, match=r"a\.csv has the column new, which the schema does not have"):
            files.fetch(spark, [make_batch(span, schema)]).frame()

    @pytest.mark.parametrize(
        ("kind", "schema", "says"),
        [
            ("json", "id nonsense(", "is not valid: id nonsense"),
            ("json", "id int, ID string", "column ID more than once|column id more than once"),
            ("json", "_wherry_x int", "names that begin with _wherry_ are reserved"),
            ("text", "a string, b string", "text files have one column, of type string"),
        ],
    )
    def test_an_invalid_schema_is_an_error(
        self, spark: SparkSession, tmp_path: Path, kind: str, schema: str, says: str
    ) -> None:
        """The error is raised before a row is read."""
        (tmp_path / "a").write_text("x")
        with pytest.raises(OriginError, match=says):
            plan_batch(spark, Files(path=str(tmp_path), format=kind, schema=schema))
