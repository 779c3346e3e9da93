"""Parquet files as a Delta table in a folder has them. Those that Spark wrote it takes over, without a row being read
and written again; few rows are written here as Spark would have. An audit compares them with what the log says: each
is there, as large, with as many rows, and holds values between the same bounds.

Readers pass over files by the bounds in the log. Wherry writes both bounds of every compared column, or none at all for
the file: `deltalake` reads a bound that is missing beside others as NULL, and then finds no value of that column.
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
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

from destinations.delta.direct_commit import open_to_readers
from destinations.destination import Loss
from origins.batch import Json
from origins.delta_actions import AddedFile, FileBody, NestedBody, StatisticsBody
from origins.files.parquet_rows import has_old_days
from origins.names import quote_name
from origins.quick_dataclass import dataclass

if TYPE_CHECKING:
    import pyarrow


COLUMNS = "org.apache.spark.sql.parquet.row.metadata"
"""Where Spark notes in a file which columns it has."""
_GROUP = 64 << 20
"""The bytes of a file's row group, before they are packed."""


@dataclass(frozen=True)
class AdoptableFiles:
    """Files with rows, all of the same columns."""

    files: Sequence[Path]
    columns: NestedBody
    """As Spark describes them."""
    rows: int

    @staticmethod
    def of(files: Sequence[Path]) -> AdoptableFiles | None:
        """Of these files; None if Spark did not write them, or not with one schema, or with the days of another
        calendar."""
        from pyarrow import parquet

        footers = {file: parquet.read_metadata(file) for file in files}
        schemas = {(footer.metadata or {}).get(COLUMNS.encode()) for footer in footers.values()}
        (columns,) = schemas if len(schemas) == 1 else [None]
        if columns is None or any(map(has_old_days, footers.values())):
            return None
        filled = [file for file, footer in footers.items() if footer.num_rows]
        return AdoptableFiles(filled, json.loads(columns), sum(footer.num_rows for footer in footers.values()))


def make_file_name(number: int = 0, suffix: str = ".snappy.parquet") -> str:
    """A name that no other data file has, as Spark writes such names; `number` tells those of one commit apart."""
    return f"part-{number:05}-{uuid.uuid4()}-c000{suffix}"


def name_for_table(found: AdoptableFiles) -> dict[str, Path]:
    """The files by the names that they get in a table's folder, where no others have them."""
    return {make_file_name(at, "".join(file.suffixes[-2:])): file for at, file in enumerate(found.files)}


def describe_files(files: Mapping[str, Path], columns: NestedBody) -> list[FileBody]:
    """What a table's log says of files with these names in its folder. `columns` is how the table describes its own."""
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


def write(pieces: Iterable[pyarrow.Table], schema: pyarrow.Schema, columns: str, file: Path) -> None:
    """Write rows as one parquet file, of which Spark reads the very types and days that it would have written.
    `columns` is how Spark describes them."""
    import pyspark
    from pyarrow import concat_tables, parquet, types

    # the file's own statistics leave out NaN, and readers that have NaN above all others would pass over it
    exact = [".".join(name) for name, kind in _list_leaves(schema) if not types.is_floating(kind)]
    with (
        file.open("wb") as new,
        parquet.ParquetWriter(new, schema.remove_metadata(), store_schema=False, write_statistics=exact) as writer,
    ):
        for group in _group_pieces(pieces):
            writer.write_table(concat_tables(group).replace_schema_metadata())
        writer.add_key_value_metadata({"org.apache.spark.version": pyspark.__version__, COLUMNS: columns})


def _group_pieces(pieces: Iterable[pyarrow.Table]) -> Iterator[list[pyarrow.Table]]:
    group: list[pyarrow.Table] = []
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
    """The files under these names in the folder, too, as new ones: what clears the folder up may take old ones for
    left over. A file gets another name only if a new one in that folder would be just as open; else it is copied."""
    wanted = _probe_access(folder)
    for name, file in files.items():
        here = folder / name
        try:
            if _read_access(file) == wanted:
                here.hardlink_to(file)
                os.utime(here)
                continue
        except OSError:  # another disk, one that knows no links, or a file of somebody else's
            here.unlink(missing_ok=True)
        shutil.copyfile(file, here)


def _probe_access(folder: Path) -> tuple[object, ...]:
    """Who may do what with a file that Spark makes in the folder."""
    new = folder / f"_probe-{uuid.uuid4()}"
    try:
        new.touch()
        open_to_readers(new)
        return _read_access(new)
    finally:
        new.unlink(missing_ok=True)


def _read_access(file: Path) -> tuple[object, ...]:
    """Who may do what with a file: its owner, group and mode, and the lists and labels that a system keeps beside."""
    status = file.stat()
    try:
        beside = {name: os.getxattr(file, name) for name in os.listxattr(file)}
    except (AttributeError, OSError):  # a system or a disk that keeps nothing beside
        beside = {}
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode), beside


_INDEXED = 32
"""Delta looks at so many columns of a table; a column inside a struct counts like any other."""
_NOTED = ("boolean", "byte", "short", "integer", "long", "decimal", "string", "date")
"""The types whose bounds a parquet file notes as Delta compares them."""
_FLOATING = ("float", "double")
_READ = (*_FLOATING, "timestamp")
"""The types whose values have to be read: a file notes no NaN, may note another zero, and notes no `INT96`."""
_COUNTED = (*_NOTED, *_READ, "binary")
"""The types whose NULLs are counted. Lists and maps would have to be read for theirs."""
_BEGIN = datetime(1970, 1, 1)
_BEGIN_IN_UTC = _BEGIN.replace(tzinfo=timezone.utc)
_CUT = 999
"""So many microseconds Spark may cut off a moment that it notes: not every reader allows for them."""
_NO_TEXT = "\ufffd"
"""What Spark notes for bytes that are no text, and for itself."""
_LONGEST = 32
"""The characters of a text that are enough to compare it."""
_LAST = "\U0010ffff"
"""No character comes behind it."""

ColumnName = tuple[str, ...]
"""A column's name, after those of the structs around it."""


@dataclass(frozen=True)
class FileStatistics:
    """What a table's log says of the rows of one file."""

    text: str
    """As JSON."""
    read: Collection[ColumnName]
    """The columns whose values were read for that: the file's footer says too little of them."""


def measure_file(file: Path | IO[bytes], columns: NestedBody, sparks: str = "{}") -> FileStatistics:
    """A file's statistics. `columns` is how the table describes its columns, in the table's order. What Spark has
    counted of some of them, which are its own statistics as JSON, is taken from there."""
    from pyarrow import parquet

    whole = parquet.ParquetFile(file, coerce_int96_timestamp_unit="us")
    noted: StatisticsBody = json.loads(sparks)
    kinds = _list_kinds(columns)
    found = {name: _find_value(noted.get("nullCount"), name) for name in kinds}
    counted = {name: nulls for name, nulls in found.items() if isinstance(nulls, int)}
    places = {name: place for place, (name, _) in enumerate(_list_leaves(whole.schema_arrow))}
    rest = {name: kind for name, kind in kinds.items() if name not in counted}
    footers = {name: _read_footer(whole.metadata, places[name], kind) for name, kind in rest.items()}
    unknown = {name: kinds[name] for name, told in footers.items() if told is None}
    known = {name: told for name, told in footers.items() if told is not None} | _read_values(whole, unknown)
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
    """The columns of a table whose bounds no footer has as Delta compares them."""
    return {name for name, kind in _list_kinds(columns).items() if kind in _READ}


def make_counted_property(names: AbstractSet[ColumnName]) -> dict[str, str]:
    """The table property that has Spark count and compare the values of these columns alone."""
    if not names:
        return {"delta.dataSkippingNumIndexedCols": "0"}
    listed = (".".join(map(quote_name, name)) for name in sorted(names))
    return {"delta.dataSkippingStatsColumns": ",".join(listed)}


def _list_kinds(columns: NestedBody) -> dict[ColumnName, str]:
    """The columns that have statistics, each with the word for its type."""
    return {name: kind for name, kind in islice(_list_columns(columns), _INDEXED) if kind in _COUNTED}


def _find_value(values: Json, name: ColumnName) -> Json:
    """The value of a column in nested statistics; None where there is none."""
    for part in name:
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _take_bounds(noted: StatisticsBody, name: ColumnName, kind: str) -> tuple[str, str] | None:
    """Both bounds of a column as Spark noted them; None where one is missing, or not every reader understands it."""
    least, highest = _find_value(noted.get("minValues"), name), _find_value(noted.get("maxValues"), name)
    if least is None or highest is None or "NaN" in (least, highest):
        return None
    if kind == "string" and any(_NO_TEXT in str(end) for end in (least, highest)):
        return None
    if kind == "timestamp":
        try:
            ends = [_count_microseconds(str(least)), _count_microseconds(str(highest)) + _CUT]
        except ValueError:  # a year without four digits
            return None
        return _write_bounds(ends, kind)
    return _write_json(least), _write_json(0.0 if highest == 0.0 and kind in _FLOATING else highest)


def _count_microseconds(moment: str) -> int:
    """From 1970 to a moment that Spark noted, in whatever zone."""
    return (datetime.fromisoformat(moment.replace("Z", "+00:00")) - _BEGIN_IN_UTC) // timedelta(microseconds=1)


def _list_columns(fields: NestedBody, above: ColumnName = ()) -> Iterator[tuple[ColumnName, str]]:
    """The columns with no others inside, each with the word for its type."""
    for field in fields["fields"]:
        name, kind = (*above, field["name"]), field["type"]
        if isinstance(kind, str):
            yield name, kind.partition("(")[0]
        elif kind["type"] == "struct":
            yield from _list_columns(kind, name)
        else:
            yield name, kind["type"]


def _list_leaves(within: pyarrow.Schema | pyarrow.DataType, above: ColumnName = ()) -> Iterator[tuple[ColumnName, Any]]:
    """The names of a file's columns in the order of its footer, with their types; what is inside a list or a map is one
    of them too."""
    import pyarrow as pa

    for at in range(len(within) if isinstance(within, pa.Schema) else within.num_fields):
        field = within.field(at)
        if pa.types.is_nested(field.type):
            yield from _list_leaves(field.type, (*above, field.name))
        else:
            yield (*above, field.name), field.type


def _read_footer(footer: pyarrow.parquet.FileMetaData, place: int, kind: str) -> tuple[int, list[Any]] | None:
    """What the file itself notes of a column: its NULLs, and both ends of each group of rows. None where the values
    have to be read."""
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


def _read_values(
    file: pyarrow.parquet.ParquetFile, kinds: Mapping[ColumnName, str]
) -> dict[ColumnName, tuple[int, list[Any]]]:
    columns: dict[ColumnName, tuple[int, list[Any]]] = {name: (0, []) for name in kinds}
    for piece in file.iter_batches(columns=[".".join(name) for name in kinds]) if kinds else ():
        for name, kind in kinds.items():
            column = _take_column(piece, name)
            nulls, ends = columns[name]
            columns[name] = nulls + column.null_count, ends + _find_ends(column, kind)
    return columns


def _take_column(piece: pyarrow.RecordBatch, name: ColumnName) -> pyarrow.Array:
    """The column with this name; NULL wherever the struct around it is."""
    import pyarrow.compute as pc

    column = piece.column(piece.schema.get_field_index(name[0]))
    for inner in name[1:]:
        column = pc.struct_field(column, column.type.get_field_index(inner))
    return column


def _find_ends(column: pyarrow.Array, kind: str) -> list[Any]:
    """The least value and the highest, in a form that Python compares as Delta does; NaN too, if it is there."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from arro3.core import Array

    if kind == "binary":
        return []
    if kind == "timestamp":
        column = column.cast(pa.timestamp("us", column.type.tz))
    plain = {"string": pa.binary(), "date": pa.int32(), "timestamp": pa.int64()}.get(kind)
    bounds = pc.min_max(column if plain is None else column.cast(plain)).as_py()
    values = [value for value in bounds.values() if value is not None]
    if kind in _FLOATING and 0 in values:
        one, zero = pa.array(Array([1.0, 0.0], pa.float64()))  # pyarrow would import pandas to make them
        sides = pc.divide(one, column.filter(pc.equal(column, zero)))
        values = [*filter(None, values), *([-0.0] if pc.min(sides).as_py() < 0 else []), 0.0]
    if kind in _FLOATING and pc.any(pc.is_nan(column)).as_py():
        values.append(math.nan)
    return values


def _write_bounds(ends: Sequence[Any], kind: str) -> tuple[str, str] | None:
    """Both bounds of a column as JSON; None where one of them has no form that every reader understands."""
    if any(isinstance(end, float) and math.isnan(end) for end in ends):
        return None  # Spark has NaN above all numbers, others compare it with none
    order = _order_zeros if kind in _FLOATING else None
    try:
        least = _write_value(min(ends, key=order), kind, highest=False)
        return least, _write_value(max(ends, key=order), kind, highest=True)
    except (UnicodeDecodeError, OverflowError):
        return None


def _order_zeros(value: float) -> tuple[float, float]:
    """A number's place in the order of those readers that have `-0.0` below `0.0`."""
    return value, math.copysign(1, value)


def _write_value(value: Any, kind: str, *, highest: bool) -> str:
    """A value as JSON. Raises `OverflowError` where there is nothing higher or the year has not four digits."""
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
    """JSON of values that are JSON already: no number passes through a float."""
    if isinstance(values, str):
        return values
    return f"{{{', '.join(f'{_write_json(name)}: {_render(value)}' for name, value in values.items())}}}"


def _write_json(value: Json) -> str:
    """A value as JSON with its characters as they are: `deltalake` takes some that are escaped for others."""
    return json.dumps(value, ensure_ascii=False)


_SHORT = 24
"""The bytes up to which a text surely stands whole in a file's statistics."""
_MOST_ROWS = 1_000_000
"""Of more rows than these no files are compared row by row."""


def find_harm(folder: Path, files: Iterable[AddedFile]) -> dict[str, Loss]:
    """What is wrong with these files of the table in the folder, by their names."""
    losses = {
        file.path: _find_wrong(place, file) for file in files if (place := _find_place(folder, file.path)) is not None
    }
    return {name: loss for name, loss in losses.items() if loss is not None}


def find_untouched(
    folder: Path, before: Sequence[str], after: Sequence[str], mine: Sequence[str]
) -> dict[str, bool | None]:
    """Whether all rows that each of the files `mine` brought are still there and unchanged.

    They were in the files `before` with other rows, until the files `after` replaced these. It is None if that is
    unknown: a file is gone or too large, or removed rows look like ours and like others.
    """
    untouched: dict[str, bool | None] = dict.fromkeys(mine)
    try:
        were, are = _count_rows(folder, before), _count_rows(folder, after)
        brought = {name: _count_rows(folder, [name]) for name in mine}
    except (OSError, ValueError):  # of Arrow's errors each is one of these
        return untouched
    ours = sum(brought.values(), Counter[str]())
    if ours - were:  # they are written otherwise than they came
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
    """The rows of these files and how often each is there. Raises `ValueError` for too many."""
    from pyarrow import parquet

    counts: Counter[str] = Counter()
    for name in names:
        place = _find_place(folder, name)
        if place is None:
            raise ValueError(f"{name} is not on this machine")
        with parquet.ParquetFile(place, coerce_int96_timestamp_unit="us") as file:
            if file.metadata.num_rows + counts.total() > _MOST_ROWS:
                raise ValueError(f"{name} has too many rows")
            rows = file.read().to_pylist()
        within = name.rpartition("/")[0]  # the values of a partition stand in no file
        counts.update(f"{within} {sorted((key, repr(value)) for key, value in row.items())}" for row in rows)
    return counts


def _find_place(folder: Path, path: str) -> Path | None:
    """Where a file lies; None if that is not on this machine."""
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
    from pyarrow import ArrowException, parquet

    try:
        footer = parquet.read_metadata(place)
    except (ArrowException, OSError):
        yield "it is not a whole parquet file"
        return
    if file.rows is not None and footer.num_rows != file.rows:
        yield f"{footer.num_rows:,} rows instead of {file.rows:,}"
    noted: StatisticsBody = json.loads(file.stats or "{}")
    least, highest = noted.get("minValues"), noted.get("maxValues")
    for name, nulls, bounds in _column_statistics(footer):
        counted = (noted.get("nullCount") or {}).get(name)
        if nulls is not None and isinstance(counted, int) and counted != nulls:
            yield f"{nulls:,} NULLs in column {name} instead of {counted:,}"
        for end, kept, bound in zip(("least", "highest"), (least, highest), bounds, strict=True):
            value = (kept or {}).get(name)
            if type(value) is type(bound) and value != bound and _is_whole(value):
                yield f"the {end} value of column {name} is {bound!r} instead of {value!r}"


def _column_statistics(footer: Any) -> Iterator[tuple[str, int | None, tuple[Any, Any]]]:
    """The columns with no others inside: how many NULLs they have, and the least and the highest value."""
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


def _read_ends(noted: pyarrow.parquet.Statistics) -> tuple[Any, Any]:
    """The least and the highest value of a group of rows; None where Python has no such value."""
    try:
        return noted.min, noted.max
    except (OverflowError, UnicodeDecodeError):  # a day after 9999, or bytes that are no text
        return None, None


def _is_whole(value: Json) -> bool:
    """Whether a bound is noted alike by every writer."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, str) and len(value.encode()) <= _SHORT
    )
