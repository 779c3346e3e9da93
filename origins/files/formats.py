"""Conversion of files of each format to rows, and the columns of files."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from origins.errors import OriginError, get_condition
from origins.files.bad_lines import CORRUPT, is_finer, make_exact_sql, widen_columns
from origins.files.changes import RESCUED, Changes, grow_schema, widen_numbers
from origins.files.csv_header import Header, match_header, read_header
from origins.files.csv_rows import CsvRows
from origins.files.file_scan import METADATA, FileScan, check_folders, from_folder, read_folder_columns, with_text
from origins.files.file_systems import File, is_small
from origins.files.in_process import are_all_plain, are_lines_plain, list_kinds, parse_rows
from origins.files.json_lines import LINE, JsonRescue, is_more, judge_json, judge_json_text, judge_surplus, parse_lines
from origins.files.json_text import JsonChanges
from origins.files.json_written import has_decimal, has_text
from origins.files.listing import PACKED
from origins.files.options import complete_options, is_whole
from origins.files.parquet_rows import ParquetRows, find_nanos, read_footers, read_schema, replace_nanos
from origins.lazy import DataFrame, F, SparkSession, T, pa, spark_errors
from origins.names import HIDDEN, quote_name
from origins.spark_settings import CASE, TIME_ZONE

_DOUBLED = "COLUMN_ALREADY_EXISTS"
"""Spark's condition for a key that a JSON object has twice."""
_OF_FILES = ("encoding", "linesep", "multiline")
"""The options that decide how text is split into lines."""
_UNTOLD = Changes(missing="evolve", extra="ignore")
"""The policies with which files are searched for further columns."""


@dataclass(frozen=True, kw_only=True)
class FileRows(FileScan):
    """A reader of files of one format. It also infers their columns, once or each time that they evolve."""

    def read(self, spark: SparkSession, names: Sequence[str], schema: T.StructType, *, places: bool) -> DataFrame:
        """Return the rows of these files, lazily.

        They have the schema's columns, `REFUSED` for json and csv, and `PLACE` with `places`. The reason of a refused
        line is complete only with `places`. A batch that raises at the first refused line needs no more.
        """
        frames = []
        for keys, group in self._group_by_folders(names, schema).items():
            from_folders = [column for column in schema if column.name.lower() in keys]
            check_folders(spark, self.place, group, from_folders)
            added = {**self.added, **{column.name: from_folder(self.place.root, column) for column in from_folders}}
            added.update({name: METADATA[name][1] for name in self.metadata if name in schema.names})
            added.update({RESCUED: "cast(null as string)"} if self.changes.rescues else {})
            lines = T.StructType([column for column in schema if column.name not in added])
            only = group[0] if len(group) == 1 else ""
            part = replace(self, added=added, name=only)
            frame = part._read_lines(spark, group, lines, places=places)  # noqa: SLF001 -- of the same class
            if added:
                besides = [name for name in frame.columns if name not in schema.names]
                frame = frame.select(*map(quote_name, [*schema.names, *besides]))
            frames.append(frame)
        return reduce(lambda one, other: one.unionByName(other), frames)

    def parses_here(self, names: Sequence[str], schema: T.StructType) -> bool:
        """Return whether `parse_here` may return rows with these columns from these files, if they are small."""
        odd = any(read_folder_columns(name) or name.lower().endswith(PACKED) for name in names)
        plain = self.format == "json" and self.options == complete_options("json", {})
        return plain and list_kinds(schema) is not None and not self.changes.rescues and not odd

    def parse_here(self, spark: SparkSession, content: bytes, schema: T.StructType) -> pa.Table | None:
        """Return the rows of one file of JSON, parsed in this process; None if Spark has to read it.

        They have no columns of `added` and `metadata`.
        """

        def zone() -> str:
            return str(TIME_ZONE.read(spark))

        wrong = JsonChanges(schema=schema, changes=self.changes, options=self.options)
        return parse_rows(content, schema, extra=wrong.asks_extra, missing=wrong.asks_missing, zone=zone)

    def _group_by_folders(self, names: Sequence[str], schema: T.StructType) -> dict[frozenset[str], list[str]]:
        """Group the files by the columns that their folders give."""
        wanted = {name.lower() for name in schema.names} - set(self.metadata)
        groups: dict[frozenset[str], list[str]] = {}
        for name in names:
            keys = read_folder_columns(name).keys()
            if self.changes.extra != "ignore" and not keys <= wanted:
                raise OriginError(
                    f"{self.place.join_path(name)} is in a folder that adds the column {min(keys - wanted)}, "
                    "which earlier files did not have.",
                    hint="Move it out of the path, or give the origin a schema.",
                )
            groups.setdefault(frozenset(keys & wanted), []).append(name)
        return groups

    def _read_lines(
        self, spark: SparkSession, names: Sequence[str], schema: T.StructType, *, places: bool
    ) -> DataFrame:
        if self.format == "json" and not schema.names:
            raise OriginError(
                f"The schema names only columns that folders give; none is in the lines of {self.place.root}.",
                hint="Give the origin a schema with at least one column of the files.",
            )
        if self.format == "csv":
            groups = self._group_by_header(spark, names, schema)
            frames = [
                CsvRows(files=self, names=group, header=header, schema=schema, places=places).read(spark)
                for header, group in groups.items()
            ]
            return reduce(lambda one, other: one.unionByName(other), frames)
        if self.format == "json":
            return self._read_json(spark, names, schema, places)
        if self.format == "parquet":
            return ParquetRows(files=self, names=names, schema=schema, places=places).read(spark)
        frame = self.load(spark, names, schema, self.options, places)
        return self.select_columns(frame, dict(zip(schema.names, schema.names, strict=True)), None, places)

    def _group_by_header(
        self, spark: SparkSession, names: Sequence[str], schema: T.StructType
    ) -> dict[Header, list[str]]:
        """Group CSV files by their columns, in the order of the columns."""
        given = Header(tuple(schema.names))
        if not self.has_header:
            return {given: list(names)}
        groups: dict[Header, list[str]] = {}
        for name in names:
            found = read_header(spark, self.place, name, self.options)
            path = self.place.join_path(name)
            header = match_header(found, schema.names, path, self.changes, besides=self.added) if found else given
            groups.setdefault(header, []).append(name)
        return groups

    def _read_json(self, spark: SparkSession, names: Sequence[str], schema: T.StructType, places: bool) -> DataFrame:
        """Return rows of JSON from Spark's reader, with refused lines that it would not notice.

        Spark's reader silently stops after the first value on a line, and drops unknown keys. If a line may have more
        values or other keys, such lines are read a second time, as refused rows. With `places`, or if anything is
        rescued, every line is read once from its text, which is slower. So are decimals of files that were found odd.
        """
        given = dict(zip(schema.names, schema.names, strict=True))
        wrong = JsonChanges(schema=schema, changes=self.changes, options=self.options)
        clean = self._is_seen_clean(names, wrong)
        odd = has_decimal(schema) and not clean and self.place.is_read_here
        again = self._writes_again(names, schema) or (odd and is_small([*map(self.place.find_file, names)]))
        as_it_is = clean and wrong.only_keys and not again and not (places and is_whole(self.options))
        if wrong.takes_apart and not as_it_is and (places or self.changes.rescues):
            apart = JsonRescue(wrong=wrong)
            files = replace(self, added={**self.added, RESCUED: apart.rescued_sql}) if self.changes.rescues else self
            return files.select_columns(
                apart.rows(self.load_lines(spark, names, places)), given, apart.make_verdict(), places
            )
        fine = [column for column in schema if is_finer(column.dataType)]
        if again or (places and (fine or not clean or is_whole(self.options))):
            return self.select_columns(
                parse_lines(self.load_lines(spark, names, places), wrong), given, judge_json_text(wrong), places
            )
        frame = self.load(spark, names, widen_columns(schema).add(CORRUPT, "string"), self.options, places)
        typed = {column.name: f"{HIDDEN}{index}" for index, column in enumerate(fine)}
        frame = frame.selectExpr(
            "*", *(f"{make_exact_sql(quote_name(each.name), each.dataType)} as {typed[each.name]}" for each in fine)
        )
        verdict = judge_json(schema, self.options, typed, in_words=places)
        rows = self.select_columns(frame, {**given, **typed}, verdict, places)
        if clean:
            return rows
        nothing = [F.lit(None).cast(column.dataType).alias(column.name) for column in schema]
        more = self.load_lines(spark, names, places).where(is_more(wrong)).select("*", *nothing)
        return rows.union(self.select_columns(more, given, judge_surplus(wrong), places))

    def _writes_again(self, names: Sequence[str], schema: T.StructType) -> bool:
        """Return whether Spark's reader gives columns of text other text than the files have.

        It copies the bytes of a number from the file, and does so only if these are not encoded or packed.
        """
        packed = is_whole(self.options) and any(name.lower().endswith(PACKED) for name in names)
        return has_text(schema) and ("encoding" in self.options or packed)

    def _is_seen_clean(self, names: Sequence[str], wrong: JsonChanges) -> bool:
        """Return whether a check of small files in this process finds no bad line.

        A bad line has more text than allowed, other keys, or values that Spark's reader changes.
        """
        if not self.place.is_read_here or self.options.keys() & {"linesep", "encoding"}:
            return False
        files, schema, whole = [*map(self.place.find_file, names)], wrong.schema, is_whole(self.options)
        counts = {"extra": wrong.asks_extra, "missing": wrong.asks_missing}
        plain = not whole and are_all_plain(files, schema, **counts)
        return plain or are_lines_plain(files, schema, **counts, doubled=wrong.asks_doubled, whole_file=whole)

    def infer(self, spark: SparkSession, files: Sequence[File]) -> T.StructType | None:
        """Return the columns of these files; None if all are empty."""
        names = [file.name for file in files if file.size]
        if not names:
            return None
        if self.format in ("json", "parquet"):
            found = self._infer_by_spark(spark, names)
            if not found.names:
                raise OriginError(
                    f"No file in {self.place.root} could be read as {self.format}, so its columns are unknown.",
                    hint="Give the origin a schema; lines that do not fit it go to the DLQ.",
                )
            return found
        header = read_header(spark, self.place, names[0], self.options) if self.format == "csv" else ("value",)
        if self.format == "csv" and not self.has_header:
            header = tuple(f"_c{index}" for index in range(len(header)))
        return with_text(T.StructType(), header) if header else None

    def infer_beyond(self, spark: SparkSession, names: Sequence[str], known: T.StructType) -> T.StructType:
        """Return the columns of these files that are unknown, or have another type; known columns may be among them.

        For new columns of CSV only headers are read. Spark does not read small JSON files without new columns.
        """
        if self.format == "json":
            if self._is_known(names, known):
                return T.StructType()
            return grow_schema(
                self._widen(spark, names, known), self._infer_by_spark(spark, names, whole=True), self.changes
            )
        if self.format == "parquet":
            kinds = {found.json(): name for name, found in read_footers(spark, self.place, names) if found is not None}
            each = (read_schema(spark, self.place, name) for name in kinds.values())
            return reduce(lambda schema, found: grow_schema(schema, found, self.changes), each, known)
        return self._infer_csv(spark, names, known) if self.format == "csv" else T.StructType()

    def _is_known(self, names: Sequence[str], known: T.StructType) -> bool:
        if self.changes.wider == "evolve" or not self.place.is_read_here:
            return False
        files, whole = [*map(self.place.find_file, names)], is_whole(self.options)
        return are_lines_plain(files, known, extra=True, missing=False, doubled=False, whole_file=whole)

    def _infer_csv(self, spark: SparkSession, names: Sequence[str], known: T.StructType) -> T.StructType:
        new: dict[str, str] = {}
        for name in names if self.has_header and self.changes.extra == "evolve" else ():
            for column in map(str.strip, read_header(spark, self.place, name, self.options)):
                new.setdefault(column.lower(), column)
        return self._widen(spark, names, with_text(known, new.values()))

    def _widen(self, spark: SparkSession, names: Sequence[str], known: T.StructType) -> T.StructType:
        if self.changes.wider != "evolve":
            return known
        read = replace(self, changes=_UNTOLD)
        return T.StructType(
            widen_numbers(known.fields, lambda columns: read.read(spark, names, T.StructType(columns), places=False))
        )

    def _infer_by_spark(self, spark: SparkSession, names: Sequence[str], *, whole: bool = False) -> T.StructType:
        all_files = {"json": {"columnNameOfCorruptRecord": CORRUPT}, "parquet": {"mergeSchema": "true"}}
        nanos: dict[str, T.DataType] = {}
        for name in names if self.format == "parquet" else ():
            nanos |= find_nanos(spark, self.place, name)
        options = {**self.options, **all_files[self.format], **({"samplingratio": "1.0"} if whole else {})}
        try:
            with CASE.change(spark, "true") if whole else contextlib.nullcontext():  # allows names that differ in case
                try:
                    reader = self.make_reader(spark, names, options)
                    found = reader.load(self.place.make_patterns(names)).schema
                except spark_errors.PySparkException as error:
                    if self.format != "json" or get_condition(error) != _DOUBLED:
                        raise
                    found = self._infer_by_undoubled(spark, names, options)
        except spark_errors.PySparkException as error:
            raise OriginError(
                f"The columns of the files in {self.place.root} cannot be found: {error}",
                hint="Give the origin a schema, or move the odd file out of the path.",
            ) from error
        return replace_nanos(T.StructType([column for column in found if column.name != CORRUPT]), nanos)

    def _infer_by_undoubled(
        self, spark: SparkSession, names: Sequence[str], options: Mapping[str, str]
    ) -> T.StructType:
        """Return the columns of the JSON objects in which no key occurs twice."""
        reading = {name: value for name, value in options.items() if name not in _OF_FILES}
        is_sound = f"try_parse_json({quote_name(LINE)}) is not null"
        lines = self.load_lines(spark, names, places=False).where(is_sound)
        return spark.read.options(**reading).json(lines.select(LINE)).schema
