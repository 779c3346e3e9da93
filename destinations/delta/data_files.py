"""The parquet files of a Delta table in a folder.

Wherry takes over files that Spark wrote, without reading and writing their rows again. It writes few rows itself, in
the way in which Spark would. An audit compares the files with the log: each file exists, and has the same size, the
same number of rows, and values between the same bounds.

Readers skip files by the bounds in the log. Wherry writes both bounds of every compared column, or no bounds for the
file. If a bound is missing beside others, `deltalake` reads it as NULL, and then finds no value of that column.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import stat
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from arro3.core import Array

from destinations.capabilities import Loss
from destinations.delta.direct_commit import open_to_readers
from origins.batch import Json
from origins.delta_actions import AddedFile, FileBody, NestedBody, StatisticsBody
from origins.errors import clean_up_by
from origins.files.parquet_rows import has_old_days
from origins.lazy import pa, pc, pq, pyspark
from origins.names import HIDDEN, quote_name

COLUMNS = "org.apache.spark.sql.parquet.row.metadata"
"""The key under which Spark records the columns of a file in its footer."""
_GROUP = 64 << 20
"""The size of a row group before compression, in bytes."""


@dataclass(frozen=True)
class AdoptableFiles:
    """Files with rows that all have the same columns."""

    files: Sequence[Path]
    columns: NestedBody
    """The columns as Spark describes them, without hidden columns. No reader looks for these in the table."""
    rows: int

    @staticmethod
    def of(files: Sequence[Path]) -> AdoptableFiles | None:
        """Return these files.

        None if Spark did not write them, or with more than one schema, or with dates of another calendar.
        """
        footers = {file: pq.read_metadata(file) for file in files}
        schemas = {(footer.metadata or {}).get(COLUMNS.encode()) for footer in footers.values()}
        (columns,) = schemas if len(schemas) == 1 else [None]
        if columns is None or any(map(has_old_days, footers.values())):
            return None
        filled = [file for file, footer in footers.items() if footer.num_rows]
        described: NestedBody = json.loads(columns)
        shown = [field for field in described["fields"] if not field["name"].startswith(HIDDEN)]
        rows = sum(footer.num_rows for footer in footers.values())
        return AdoptableFiles(filled, {**described, "fields": shown}, rows)


def make_file_name(number: int = 0, suffix: str = ".snappy.parquet") -> str:
    """Return a unique name for a data file, in Spark's format. `number` distinguishes the files of one commit."""
    return f"part-{number:05}-{uuid.uuid4()}-c000{suffix}"


def name_for_table(found: AdoptableFiles) -> dict[str, Path]:
    """Return the files by their names in a table's folder. No other file has such a name."""
    return {make_file_name(at, "".join(file.suffixes[-2:])): file for at, file in enumerate(found.files)}


def describe_files(files: Mapping[str, Path], columns: NestedBody) -> list[FileBody]:
    """Return the log's entries for files with these names in the table's folder. `columns` has the table's columns."""
    return [
        {
            "path": quote(name),
            "partitionValues": {},
            "size": status.st_size,
            "modificationTime": status.st_mtime_ns // 1_000_000,
            "dataChange": True,
            "stats": measure_file(file, columns).text,
        }
        for name, file in files.items()
        for status in [file.stat()]
    ]


def write(pieces: Iterable[pa.Table], schema: pa.Schema, columns: str, file: Path) -> None:
    """Write rows as one parquet file.

    Spark reads the same types and dates from it as if Spark had written it. `columns` has the columns as Spark
    describes them.
    """
    # the file's statistics leave out NaN; readers that order NaN above all numbers would then skip it
    exact = [".".join(name) for name, kind in _list_leaves(schema) if not pa.types.is_floating(kind)]
    with (
        file.open("wb") as new,
        pq.ParquetWriter(new, schema.remove_metadata(), store_schema=False, write_statistics=exact) as writer,
    ):
        for group in _group_pieces(pieces):
            writer.write_table(pa.concat_tables(group).replace_schema_metadata())
        writer.add_key_value_metadata({"org.apache.spark.version": pyspark.__version__, COLUMNS: columns})


def _group_pieces(pieces: Iterable[pa.Table]) -> Iterator[list[pa.Table]]:
    group: list[pa.Table] = []
    size = 0
    for piece in pieces:
        group.append(piece)
        size += piece.nbytes
        if size >= _GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


def bring(files: Mapping[str, Path], folder: Path) -> None:
    """Link or copy the files into the folder under these names, with a new modification time.

    Otherwise a vacuum may treat old files as leftovers. A file is linked only if it has the access rights of a new file
    in that folder. If not, it is copied.
    """
    wanted = _probe_access(folder)
    for name, file in files.items():
        here = folder / name
        try:
            if _read_access(file) == wanted:
                here.hardlink_to(file)
                os.utime(here)
                continue
        except OSError:  # another disk, a disk without links, or a file of another user
            here.unlink(missing_ok=True)
        shutil.copyfile(file, here)


def _probe_access(folder: Path) -> tuple[object, ...]:
    """Return the access rights of a file that Spark creates in the folder."""
    new = folder / f"_probe-{uuid.uuid4()}"
    with clean_up_by(lambda: new.unlink(missing_ok=True)):
        new.touch()
        open_to_readers(new)
        return _read_access(new)


def _read_access(file: Path) -> tuple[object, ...]:
    """Return the access rights of a file: owner, group, mode, and extended attributes."""
    status = file.stat()
    try:
        beside = {name: os.getxattr(file, name) for name in os.listxattr(file)}
    except (AttributeError, OSError):  # a system or a disk without extended attributes
        beside = {}
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode), beside


_INDEXED = 32
"""How many columns of a table Delta compares. A column inside a struct counts as one."""
_NOTED = ("boolean", "byte", "short", "integer", "long", "decimal", "string", "date")
"""The types whose bounds a parquet file records as Delta compares them."""
_FLOATING = ("float", "double")
_READ = (*_FLOATING, "timestamp")
"""The types whose values must be read. A file records no NaN, may record another zero, and records no `INT96`."""
_COUNTED = (*_NOTED, *_READ, "binary")
"""The types whose NULLs are counted. For lists and maps, the values would have to be read."""
_BEGIN = datetime(1970, 1, 1)
_BEGIN_IN_UTC = _BEGIN.replace(tzinfo=timezone.utc)
_CUT = 999
"""How many microseconds Spark may cut off a time that it records. Not every reader allows for them."""
_NO_TEXT = "\ufffd"
"""What Spark records for bytes that are no text, and for this character."""
_LONGEST = 32
"""How many characters of a text are compared."""
_LAST = "\U0010ffff"
"""The last character. No other character sorts after it."""

ColumnName = tuple[str, ...]
"""A column's name, after the names of the structs around it."""


@dataclass(frozen=True)
class FileStatistics:
    """What a table's log records about the rows of one file."""

    text: str
    """The statistics as JSON."""
    read: Collection[ColumnName]
    """The columns whose values were read, because the file's footer records too little about them."""


def measure_file(file: Path | IO[bytes], columns: NestedBody, sparks: str = "{}") -> FileStatistics:
    """Return a file's statistics.

    `columns` describes the table's columns, in the table's order. `sparks` has Spark's statistics as JSON. They are
    used for the columns that they have.
    """
    whole = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
    noted: StatisticsBody = json.loads(sparks)
    kinds = _list_kinds(columns)
    found = {name: _find_value(noted.get("nullCount"), name) for name in kinds}
    counted = {name: nulls for name, nulls in found.items() if isinstance(nulls, int)}
    places = {name: place for place, (name, _) in enumerate(_list_leaves(whole.schema_arrow))}
    rest = {name: kind for name, kind in kinds.items() if name not in counted}
    footers = {name: _read_footer(whole.metadata, places[name], kind) for name, kind in rest.items()}
    unknown = {name: kinds[name] for name, values in footers.items() if values is None}
    known = {name: values for name, values in footers.items() if values is not None} | _read_values(whole, unknown)
    bounds = {name: _write_bounds(known[name][1], kind) for name, kind in rest.items() if known[name][1]}
    filled = (name for name, nulls in counted.items() if nulls != whole.metadata.num_rows and kinds[name] != "binary")
    bounds |= {name: _take_bounds(noted, name, kinds[name]) for name in filled}
    least, highest = ({name: pair[end] for name, pair in bounds.items() if pair} for end in (0, 1))
    nulls = {name: str(counted[name] if name in counted else known[name][0]) for name in kinds}
    stats = {
        "numRecords": str(whole.metadata.num_rows),
        **({"minValues": _nest_values(least), "maxValues": _nest_values(highest)} if all(bounds.values()) else {}),
        "nullCount": _nest_values(nulls),
    }
    return FileStatistics(_render(stats), tuple(unknown))


def list_unnoted(columns: NestedBody) -> set[ColumnName]:
    """Return the columns whose bounds no footer records as Delta compares them."""
    return {name for name, kind in _list_kinds(columns).items() if kind in _READ}


def make_counted_property(names: AbstractSet[ColumnName]) -> dict[str, str]:
    """Return the table property that makes Spark count and compare the values of only these columns."""
    if not names:
        return {"delta.dataSkippingNumIndexedCols": "0"}
    listed = (".".join(map(quote_name, name)) for name in sorted(names))
    return {"delta.dataSkippingStatsColumns": ",".join(listed)}


def _list_kinds(columns: NestedBody) -> dict[ColumnName, str]:
    """Return the columns that have statistics, each with the name of its type."""
    return {name: kind for name, kind in islice(_list_columns(columns), _INDEXED) if kind in _COUNTED}


def _find_value(values: Json, name: ColumnName) -> Json:
    """Return the value of a column in nested statistics; None if it has no value."""
    for part in name:
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _take_bounds(noted: StatisticsBody, name: ColumnName, kind: str) -> tuple[str, str] | None:
    """Return both bounds of a column as Spark recorded them.

    It is None if one is missing, or some readers would misunderstand one.
    """
    least, highest = _find_value(noted.get("minValues"), name), _find_value(noted.get("maxValues"), name)
    if least is None or highest is None or "NaN" in (least, highest):
        return None
    if kind == "string" and any(_NO_TEXT in str(end) for end in (least, highest)):
        return None
    if kind == "timestamp":
        try:
            ends = [_count_microseconds(str(least)), _count_microseconds(str(highest)) + _CUT]
        except ValueError:  # a year that has not four digits
            return None
        return _write_bounds(ends, kind)
    return _write_json(least), _write_json(0.0 if highest == 0.0 and kind in _FLOATING else highest)


def _count_microseconds(moment: str) -> int:
    """Return the microseconds from 1970 to a time that Spark recorded, in any time zone."""
    return (datetime.fromisoformat(moment.replace("Z", "+00:00")) - _BEGIN_IN_UTC) // timedelta(microseconds=1)


def _list_columns(fields: NestedBody, above: ColumnName = ()) -> Iterator[tuple[ColumnName, str]]:
    """Return the columns without inner columns, each with the name of its type."""
    for field in fields["fields"]:
        name, kind = (*above, field["name"]), field["type"]
        if isinstance(kind, str):
            yield name, kind.partition("(")[0]
        elif kind["type"] == "struct":
            yield from _list_columns(kind, name)
        else:
            yield name, kind["type"]


def _list_leaves(within: pa.Schema | pa.DataType, above: ColumnName = ()) -> Iterator[tuple[ColumnName, Any]]:
    """Return the names and types of a file's columns in the order of its footer, with those inside lists and maps."""
    for at in range(len(within) if isinstance(within, pa.Schema) else within.num_fields):
        field = within.field(at)
        if pa.types.is_nested(field.type):
            yield from _list_leaves(field.type, (*above, field.name))
        else:
            yield (*above, field.name), field.type


def _read_footer(footer: pq.FileMetaData, place: int, kind: str) -> tuple[int, list[Any]] | None:
    """Return what the file records about a column: its NULLs, and both bounds of each row group.

    It is None if the values must be read.
    """
    nulls, ends = 0, []
    for at in range(footer.num_row_groups):
        group = footer.row_group(at)
        noted = group.column(place).statistics
        if kind in _READ or noted is None or not noted.has_null_count:
            return None
        nulls += noted.null_count
        if kind == "binary" or noted.null_count == group.num_rows:
            continue
        if not noted.has_min_max:
            return None
        ends += [noted.min, noted.max] if kind == "decimal" else [noted.min_raw, noted.max_raw]
    return nulls, ends


def _read_values(file: pq.ParquetFile, kinds: Mapping[ColumnName, str]) -> dict[ColumnName, tuple[int, list[Any]]]:
    columns: dict[ColumnName, tuple[int, list[Any]]] = {name: (0, []) for name in kinds}
    for piece in file.iter_batches(columns=[".".join(name) for name in kinds]) if kinds else ():
        for name, kind in kinds.items():
            column = _take_column(piece, name)
            nulls, ends = columns[name]
            columns[name] = nulls + column.null_count, ends + _find_ends(column, kind)
    return columns


def _take_column(piece: pa.RecordBatch, name: ColumnName) -> pa.Array:
    """Return the column with this name. It is NULL in each row in which the struct around it is NULL."""
    column = piece.column(piece.schema.get_field_index(name[0]))
    for inner in name[1:]:
        column = pc.struct_field(column, column.type.get_field_index(inner))
    return column


def _find_ends(column: pa.Array, kind: str) -> list[Any]:
    """Return the least and the highest value, in a form that Python compares as Delta does; also NaN, if it occurs."""
    if kind == "binary":
        return []
    if kind == "timestamp":
        column = column.cast(pa.timestamp("us", column.type.tz))
    plain = {"string": pa.binary(), "date": pa.int32(), "timestamp": pa.int64()}.get(kind)
    bounds = pc.min_max(column if plain is None else column.cast(plain)).as_py()
    values = [value for value in bounds.values() if value is not None]
    if kind in _FLOATING and 0 in values:
        one, zero = pa.array(Array([1.0, 0.0], pa.float64()))  # pyarrow would import pandas to make this array
        sides = pc.divide(one, column.filter(pc.equal(column, zero)))
        values = [*filter(None, values), *([-0.0] if pc.min(sides).as_py() < 0 else []), 0.0]
    if kind in _FLOATING and pc.any(pc.is_nan(column)).as_py():
        values.append(math.nan)
    return values


def _write_bounds(ends: Sequence[Any], kind: str) -> tuple[str, str] | None:
    """Return both bounds of a column as JSON; None if some readers would misunderstand one of them."""
    if any(isinstance(end, float) and math.isnan(end) for end in ends):
        return None  # Spark orders NaN above all numbers; other readers compare it with none
    order = _order_zeros if kind in _FLOATING else None
    try:
        least = _write_value(min(ends, key=order), kind, highest=False)
        return least, _write_value(max(ends, key=order), kind, highest=True)
    except (UnicodeDecodeError, OverflowError):
        return None


def _order_zeros(value: float) -> tuple[float, float]:
    """Return a number's place in the order of readers that sort `-0.0` below `0.0`."""
    return value, math.copysign(1, value)


def _write_value(value: Any, kind: str, *, highest: bool) -> str:
    """Return a value as JSON. Raises `OverflowError` if no value is surely higher, or the year has not four digits."""
    if kind == "decimal":
        return f"{value:f}"
    if kind == "date":
        return json.dumps((_BEGIN + timedelta(days=value)).date().isoformat())
    if kind == "timestamp":
        exact = "microseconds" if value % 1000 else "milliseconds"
        return json.dumps((_BEGIN + timedelta(microseconds=value)).isoformat(timespec=exact) + "Z")
    if kind == "string":
        text = value.decode()
        rest = text[_LONGEST:] if highest else ""
        if rest.startswith(_LAST):
            raise OverflowError(f"Nothing is surely higher than {text[: _LONGEST + 1]!a} and what follows it.")
        return _write_json(text[:_LONGEST] + (_LAST if rest else ""))
    text = json.dumps(value)
    return f'"{text}"' if isinstance(value, float) and math.isinf(value) else text


def _nest_values(values: Mapping[ColumnName, str]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for (*above, name), value in values.items():
        inside = nested
        for struct in above:
            inside = inside.setdefault(struct, {})
        inside[name] = value
    return nested


def _render(values: str | Mapping[str, Any]) -> str:
    """Return JSON of values that are already JSON, so that no number passes through a float."""
    if isinstance(values, str):
        return values
    return f"{{{', '.join(f'{_write_json(name)}: {_render(value)}' for name, value in values.items())}}}"


def _write_json(value: Json) -> str:
    """Return a value as JSON without escaped characters, because `deltalake` misreads some escapes."""
    return json.dumps(value, ensure_ascii=False)


_SHORT = 24
"""The longest text in bytes that a file's statistics surely record completely."""
_MOST_ROWS = 1_000_000
"""The highest number of rows in files that are compared row by row."""


def find_harm(folder: Path, files: Iterable[AddedFile]) -> dict[str, Loss]:
    """Return what is wrong with these files of the table in the folder, by their names."""
    losses = {
        file.path: _find_wrong(place, file) for file in files if (place := _find_place(folder, file.path)) is not None
    }
    return {name: loss for name, loss in losses.items() if loss is not None}


def find_untouched(
    folder: Path, before: Sequence[str], after: Sequence[str], mine: Sequence[str]
) -> dict[str, bool | None]:
    """Return, for each of the files `mine`, whether all rows that it brought still exist unchanged.

    Its rows were in the files `before` together with other rows, until the files `after` replaced these. The answer is
    None if that is unknown: a file is missing or too large, or removed rows equal rows of this file and other rows.
    """
    untouched: dict[str, bool | None] = dict.fromkeys(mine)
    try:
        were, are = _count_rows(folder, before), _count_rows(folder, after)
        brought = {name: _count_rows(folder, [name]) for name in mine}
    except (OSError, ValueError):  # all errors of Arrow are one of these
        return untouched
    ours = sum(brought.values(), Counter[str]())
    if ours - were:  # the rows were written in another form than they came
        return untouched
    went, others = were - are, were - ours
    for name, rows in brought.items():
        alike = [row for row in rows if went[row]]
        if all(went[row] <= others[row] for row in alike):
            untouched[name] = None if alike else True
        else:
            untouched[name] = False
    return untouched


def _count_rows(folder: Path, names: Sequence[str]) -> Counter[str]:
    """Count how often each row is in these files. Raises `ValueError` if there are too many rows."""
    counts: Counter[str] = Counter()
    for name in names:
        place = _find_place(folder, name)
        if place is None:
            raise ValueError(f"{name} is not on this machine")
        with pq.ParquetFile(place, coerce_int96_timestamp_unit="us") as file:
            if file.metadata.num_rows + counts.total() > _MOST_ROWS:
                raise ValueError(f"{name} has too many rows")
            rows = file.read().to_pylist()
        within = name.rpartition("/")[0]  # no file has the values of its partition
        shown = [[each for each in row.items() if not each[0].startswith(HIDDEN)] for row in rows]
        counts.update(f"{within} {sorted((key, repr(value)) for key, value in row)}" for row in shown)
    return counts


def _find_place(folder: Path, path: str) -> Path | None:
    """Return the path of a file; None if it is not on this machine."""
    if path.startswith("file:"):
        return Path("/" + path.removeprefix("file:").lstrip("/"))
    return None if ":/" in path else folder / path


def _find_wrong(place: Path, file: AddedFile) -> Loss | None:
    try:
        size = place.stat().st_size
    except OSError:
        return Loss(code="FILE_GONE", reason=f"the file {place} is missing, though the table needs it")
    how = f"{size:,} bytes instead of {file.size:,}" if size != file.size else next(_list_differences(place, file), "")
    if not how:
        return None
    return Loss(code="FILE_CHANGED", reason=f"the file {place} differs from what its commit wrote: {how}")


def _list_differences(place: Path, file: AddedFile) -> Iterator[str]:
    try:
        footer = pq.read_metadata(place)
    except (pa.ArrowException, OSError):
        yield "it is not a whole parquet file"
        return
    if file.rows is not None and footer.num_rows != file.rows:
        yield f"{footer.num_rows:,} rows instead of {file.rows:,}"
    noted: StatisticsBody = json.loads(file.stats or "{}")
    least, highest = noted.get("minValues"), noted.get("maxValues")
    for name, nulls, bounds in _list_column_statistics(footer):
        counted = (noted.get("nullCount") or {}).get(name)
        if nulls is not None and isinstance(counted, int) and counted != nulls:
            yield f"{nulls:,} NULLs in column {name} instead of {counted:,}"
        for end, kept, bound in zip(("least", "highest"), (least, highest), bounds, strict=True):
            value = (kept or {}).get(name)
            if type(value) is type(bound) and value != bound and _is_whole(value):
                yield f"the {end} value of column {name} is {bound!r} instead of {value!r}"


def _list_column_statistics(footer: Any) -> Iterator[tuple[str, int | None, tuple[Any, Any]]]:
    """Return the columns without inner columns, with the number of NULLs, the least value and the highest."""
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    for at in range(footer.num_columns if groups else 0):
        name = groups[0].column(at).path_in_schema
        statistics = [group.column(at).statistics for group in groups]
        if "." in name or any(part is None for part in statistics):
            continue
        counted = all(part.has_null_count for part in statistics)
        ends = [value for part in statistics if part.has_min_max for value in _read_ends(part)]
        comparable = len({type(value) for value in ends}) == 1 and None not in ends
        bounds = (min(ends), max(ends)) if comparable else (None, None)
        yield name, sum(part.null_count for part in statistics) if counted else None, bounds


def _read_ends(noted: pq.Statistics) -> tuple[Any, Any]:
    """Return the least and the highest value of a row group; None for both if Python has no such value."""
    try:
        return noted.min, noted.max
    except (OverflowError, UnicodeDecodeError):  # a date after 9999, or bytes that are no text
        return None, None


def _is_whole(value: Json) -> bool:
    """Whether every writer records a bound like this one in the same way."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, str) and len(value.encode()) <= _SHORT
    )
