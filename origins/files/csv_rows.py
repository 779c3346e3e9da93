"""Conversion of CSV files with the same header to rows.

Spark's reader silently closes open quotes, and turns bytes that are not text into question marks. If files may have
such lines, these lines are read a second time, as refused rows. A batch that is decided row by row reads every line
once from its text, which is slower. With `multiLine` a file with an open quote is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from origins.files.bad_lines import (
    CORRUPT,
    ONCE,
    Verdict,
    as_map,
    describe_misfits,
    fits_wider_number,
    is_lost_field,
    join_conditions,
    make_typed_field,
)
from origins.files.changes import RESCUED, Changes
from origins.files.csv_header import (
    NO_TEXT,
    OPEN,
    Header,
    are_quotes_closed,
    count_fields_sql,
    find_open_quotes,
    is_no_text,
    is_open,
    is_other_text,
    was_no_text,
)
from origins.files.file_scan import FILE, FileScan, make_text_schema
from origins.files.json_lines import LINE
from origins.files.listing import PACKED
from origins.files.options import is_whole
from origins.lazy import DataFrame, F, SparkSession, T
from origins.names import HIDDEN, quote_name, quote_text

_AS_IT_IS = {"ignoreleadingwhitespace": "false", "ignoretrailingwhitespace": "false"}


@dataclass(frozen=True, kw_only=True)
class CsvVerdict:
    """A line of a file with this header. `typed` names the column of each typed field.

    `suspect` has further conditions under which it is not a valid line, each with its message. If `line` is not known,
    Spark keeps only lines with too few or too many fields. Any other line is written again from its fields.
    """

    header: Header
    typed: Mapping[T.StructField, str]
    options: Mapping[str, str]
    changes: Changes
    suspect: Mapping[str, str] = field(default_factory=dict)
    line: str = "NULL"

    @property
    def no_line(self) -> str:
        """Return SQL that is true for text that is not a valid line of the file.

        Spark refuses a query that selects only corrupt lines. So the condition also uses a field, in a part that is
        never true and that no optimizer can remove.
        """
        corrupt = quote_name(CORRUPT)
        also = f"coalesce({quote_name(self.header.columns[0])} is null and char_length({corrupt}) < 0, false)"
        return " or ".join([f"{corrupt} is not null", also, *self.suspect])

    def fit_sql(self, column: T.StructField) -> str:
        """Return SQL for the column's value; NULL if its text does not fit and is rescued."""
        name, is_kept = self.typed[column], self._make_lost_sql(column, "rescue")
        return name if is_kept == "false" else f"if({is_kept}, null, {name})"

    @property
    def rescued_sql(self) -> str:
        """Return SQL for the rescued values of a line, as JSON; NULL if nothing was rescued."""
        values = dict.fromkeys(self.header.others.values(), "NULL")
        if self.changes.extra == "rescue":
            values = {real: quote_name(name) for name, real in self.header.others.items()}
        for column in self.typed:
            is_kept = self._make_lost_sql(column, "rescue")
            if is_kept != "false":
                values[column.name] = f"if({is_kept}, {quote_name(column.name)}, NULL)"
        pairs = ", ".join(f"{quote_text(name)}, {value}" for name, value in values.items() if value != "NULL")
        some = (
            f"nullif(to_json(map_filter(map({pairs}), (key, value) -> value is not null)), '{{}}')" if pairs else "NULL"
        )
        whole = f"to_json(named_struct('_line', {self._raw}))" if self.changes.corrupt == "rescue" else "NULL"
        return f"cast(case when {self.no_line} then {whole} else {some} end as string)"

    def make_verdict(self, *, in_words: bool) -> Verdict:
        lost = [self._make_lost_sql(column, "stop", "nack", "evolve") for column in self.typed]
        is_bad = join_conditions([self.no_line, *lost])
        if self.changes.corrupt == "rescue":
            is_bad = f"not ({self.no_line}) and ({join_conditions(lost)})"
        why, raw = self._miscount_message, quote_name(CORRUPT)
        if self.header.wrong:
            is_bad, raw = "true", "cast(null as string)"
        if in_words:
            misfits = describe_misfits((each, quote_name(each.name), self._is_lost(each)) for each in self.typed)
            first = "".join(f"when {condition} then {quote_text(what)} " for condition, what in self.suspect.items())
            why = f"case {first}when {quote_name(CORRUPT)} is null then {misfits} else {why} end"
            raw = self._raw
        return Verdict(
            is_bad=is_bad,
            why=quote_text(self.header.wrong) if self.header.wrong else why,
            raw=raw,
            is_change=str(bool(self.header.wrong)).lower(),
            stops=self._stops,
        )

    @property
    def _miscount_message(self) -> str:
        """Return SQL for the message about a line with too few or too many fields."""
        expected, found = len(self.header.columns), count_fields_sql(quote_name(CORRUPT), self.options)
        fields = f"{found}, if({found} = 1, ' field', ' fields')"
        has = f"concat('this line has ', {fields}, ', and {expected} were expected')"
        other = quote_text(f"this line cannot be read as the {expected} fields that were expected")
        return f"if({found} = {expected}, {other}, {has})"

    @property
    def _stops(self) -> str:
        broken = self.no_line if self.changes.corrupt == "stop" else "false"
        lost = [self._make_lost_sql(column, "stop") for column in self.typed]
        return "false" if self.header.wrong else join_conditions([*lost, broken])

    @property
    def _raw(self) -> str:
        fields = f"struct({', '.join(map(quote_name, self.header.columns))})"
        return (
            f"coalesce({quote_name(CORRUPT)}, {self.line}, to_csv({fields}, {as_map({**_AS_IT_IS, **self.options})}))"
        )

    def _is_lost(self, column: T.StructField) -> str:
        return is_lost_field(column, quote_name(column.name), self.typed[column])

    def _make_lost_sql(self, column: T.StructField, *policies: str) -> str:
        """Return SQL that is true for a field whose text does not fit, if the policy for that is one of these."""
        is_wider = fits_wider_number(column, quote_name(column.name))
        return self.changes.limit_lost(self._is_lost(column), is_wider, policies)


_PARSED = HIDDEN + "parsed"
_FIELDS = frozenset({"sep", "delimiter", "quote", "escape"})
_END = "\uffff"
"""The character at which `from_csv` ends a line, with any options."""
_STANDS_FOR = {"\ufdd0": "\ufdd0\ufdd1", _END: "\ufdd0\ufdd2"}
"""What `from_csv` reads in place of these characters if a line has `_END`."""
_STOOD_FOR = {text: sign for sign, text in reversed(_STANDS_FOR.items())}


def parse_fields(lines: DataFrame, columns: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """Return lines of CSV, which have the column `LINE`, with the texts of their fields and with `CORRUPT`."""
    line, names = quote_name(LINE), [*map(quote_name, [*columns, CORRUPT])]
    has_end = f"contains({line}, {quote_text(_END)})"
    text = f"if({has_end}, {_replace_all(line, _STANDS_FOR)}, {line})"
    fields = quote_text(", ".join(f"{name} string" for name in names))
    parsed = F.when(F.expr(ONCE), F.expr(f"from_csv({text}, {fields}, {as_map(options)})"))
    frame = lines.withColumn(_PARSED, parsed)
    exact = (f"if({has_end}, {_replace_all(at, _STOOD_FOR)}, {at})" for at in (f"{_PARSED}.{name}" for name in names))
    return frame.selectExpr(
        *map(quote_name, lines.columns), *(f"{at} as {name}" for at, name in zip(exact, names, strict=True))
    )


def _replace_all(text: str, signs: Mapping[str, str]) -> str:
    for old, new in signs.items():
        text = f"replace({text}, {quote_text(old)}, {quote_text(new)})"
    return text


@dataclass(frozen=True, kw_only=True)
class CsvRows:
    """CSV files with the same header, and the rows to read from them."""

    files: FileScan
    names: Sequence[str]
    header: Header
    schema: T.StructType
    places: bool

    def read(self, spark: SparkSession) -> DataFrame:
        clean = self._is_seen_closed()
        if is_whole(self._options) and not clean:
            return self._read_over_lines(spark)
        if (self.places or self.files.changes.rescues) and not is_whole(self._options):
            return self._read_out_of_lines(spark, clean)
        others = {was_no_text(quote_name(name)): NO_TEXT for name in self.header.columns}
        rows = self._read_fields(spark, self.names, others if is_other_text(self._options) and not clean else {})
        if clean:
            return rows
        line = quote_name(LINE)
        return rows.union(
            self._refuse_lines(
                spark, self.names, f"{is_open(line, self._options)} or {is_no_text(line, self._options)}"
            )
        )

    @property
    def _options(self) -> Mapping[str, str]:
        return self.files.options

    def _is_seen_closed(self) -> bool:
        """Return whether a check of small files shows that no line has an open quote, or bytes that are not text."""
        looks = self.files.place.is_read_here and not any(name.endswith(PACKED) for name in self.names)
        return looks and are_quotes_closed([*map(self.files.place.find_file, self.names)], self._options)

    def _read_over_lines(self, spark: SparkSession) -> DataFrame:
        looked = [name for name in self.names if self.files.place.is_read_here and not name.endswith(PACKED)]
        files = {name: self.files.place.find_file(name) for name in looked}
        bad = find_open_quotes([*files.values()], self._options)
        broken = [name for name, file in files.items() if file in bad]
        others = [name for name in self.names if name not in broken]
        suspect = {was_no_text(quote_name(name)): NO_TEXT for name in self.header.columns}
        frames = [self._read_fields(spark, others, suspect)] if others else []
        frames += [self._refuse_lines(spark, broken, "true")] if broken else []
        return reduce(lambda one, other: one.union(other), frames)

    def _read_fields(self, spark: SparkSession, names: Sequence[str], suspect: Mapping[str, str]) -> DataFrame:
        """Return the rows of the files.

        Fields are read as text, so that a cast decides whether they fit their types.
        """
        options = {**self._options, "header": str(self.files.has_header).lower(), "columnpruning": "false"}
        frame = self.files.load(spark, names, make_text_schema([*self.header.columns, CORRUPT]), options, self.places)
        return self._cast_fields(frame, options, suspect)

    def _read_out_of_lines(self, spark: SparkSession, clean: bool) -> DataFrame:
        """Return the rows from whole lines.

        Spark's reader handles headers and comments, and fields are parsed from the lines.
        """
        kept = {"comment", "linesep", "encoding", "charset"} & self._options.keys()
        end = self._options.get("linesep", "\n")  # no line has it, so with it as separator a line is one field
        whole = {**{name: self._options[name] for name in kept}, "sep": end, "quote": end[-1], "escape": end[-1]}
        whole |= {"header": str(self.files.has_header).lower(), "columnpruning": "false"}
        frame = self.files.load(spark, self.names, make_text_schema([LINE, CORRUPT]), whole, places=True)
        frame = frame.select(FILE, F.coalesce(CORRUPT, LINE).alias(LINE))
        spent = {*whole, *kept} - _FIELDS
        fields = {name: value for name, value in self._options.items() if name not in spent}
        frame, line = parse_fields(frame, self.header.columns, fields), quote_name(LINE)
        suspect = {is_open(line, self._options): OPEN, was_no_text(line): NO_TEXT}
        return self._cast_fields(frame, fields, {} if clean else suspect, line=line)

    def _cast_fields(
        self, frame: DataFrame, options: Mapping[str, str], suspect: Mapping[str, str], *, line: str = "NULL"
    ) -> DataFrame:
        typed = {
            column: f"{HIDDEN}{index}"
            for index, column in enumerate(self.schema)
            if not isinstance(column.dataType, T.StringType)
        }
        absent = [column.name for column in self.schema if column.name not in self.header.columns]
        frame = frame.selectExpr("*", *(f"cast(null as string) as {quote_name(name)}" for name in absent))
        changes = self.files.changes
        judged = CsvVerdict(
            header=self.header, typed=typed, options=options, changes=changes, suspect=suspect, line=line
        )
        fields = [
            f"case when {ONCE} then {make_typed_field(column, options)} end as {typed[column]}" for column in typed
        ]
        given = {column.name: typed.get(column, column.name) for column in self.schema}
        files = self.files
        if changes.rescues:
            files = replace(files, added={**files.added, RESCUED: judged.rescued_sql})
            frame = frame.selectExpr("*", *fields)
            fits = {
                column.name: judged.fit_sql(column) if column in typed else quote_name(column.name)
                for column in self.schema
            }
            is_line = f"not ({judged.no_line})" if changes.corrupt == "rescue" else "true"
            fields = [f"case when {is_line} then {at} end as {HIDDEN}whole_{i}" for i, at in enumerate(fits.values())]
            given = {name: f"{HIDDEN}whole_{index}" for index, name in enumerate(given)}
        return files.select_columns(
            frame.selectExpr("*", *fields), given, judged.make_verdict(in_words=self.places), self.places
        )

    def _refuse_lines(self, spark: SparkSession, names: Sequence[str], condition: str) -> DataFrame:
        """Return the lines that meet a condition, or with `multiLine` whole files, all of them refused or rescued."""
        nothing = [F.lit(None).cast(column.dataType).alias(column.name) for column in self.schema]
        lines = self.files.load_lines(spark, names, self.places).where(condition).select("*", *nothing)
        is_kept = self.files.changes.corrupt == "rescue" and not self.header.wrong
        stops = str(self.files.changes.corrupt == "stop").lower()
        verdict = Verdict(is_bad=str(not is_kept).lower(), why=quote_text(OPEN), raw=quote_name(LINE), stops=stops)
        kept = {RESCUED: f"to_json(named_struct('_line', {quote_name(LINE)}))"} if is_kept else {}
        given = dict(zip(self.schema.names, self.schema.names, strict=True))
        files = replace(self.files, added={**self.files.added, **kept})
        return files.select_columns(lines, given, verdict, self.places)
