"""`claim` and `unclaim`: large values go to a store, and rows have references until the values are put back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, TypeAlias, get_args

from origins.functions import ship_modules
from origins.lazy import Column, F, T, pa
from origins.nack import REASON, make_reason
from origins.names import HIDDEN, make_absolute, quote_name
from origins.quantities import check_seconds, parse_size
from origins.schema import walk_types
from origins.spark_versions import call_in_workers
from origins.store_access import canonicalise, get_options, is_store_url, make_client_arguments
from stages.bisection import LARGE
from stages.capabilities import StoresValues, WorksInPython
from stages.claim_store import PREFIX, TABLE, FolderFiles, ObjectFiles, StoreFiles, TableValues, ValueClaims, ValueStore
from stages.expressions import SqlText, check_names
from stages.rows import ASIDE, LIVE, ONCE, ORIGINAL, Rows, compute_once, list_columns, make_struct
from stages.stage import Stage, check_columns

_ANSWER, _ASKED = HIDDEN + "answer", HIDDEN + "asked"
_SENT = ("stages.bisection", "stages.python_call", "stages.claim_store", "stages.claim_worker")
"""The modules that are sent to Spark's workers, which need not have Wherry."""
Format: TypeAlias = Literal["files", "delta"]
_LEAST = 1_024
"""The smallest limit. A reference has up to 130 bytes, and must be shorter than the value that it replaces."""


class _Storing(StoresValues, WorksInPython):
    """What both stages do with a store."""

    upkeep: ClassVar[str] = "runners.claims"
    path: str
    format: Format

    def list_worker_packages(self) -> set[str]:
        store = {"obstore"} if is_store_url(self.path) else set()
        return {"pyarrow", *store, *({"deltalake"} if self.format == "delta" else ())}


@dataclass(frozen=True, kw_only=True)
class Claim(Stage, _Storing):
    """Stores large values elsewhere, once each. Rows have a reference in their place, until `unclaim` puts them back.

    Example:
        claim:
          path: claims
          over: 1MiB
          refuse_over: 10MiB
    """

    path: str = field(metadata={"path": True})
    """The folder of the store, relative to the definition; or the URL of a folder in an object store."""
    format: Format = "files"
    """With `delta` the values are in a Delta table in that folder, `table`. By default each value is a file."""
    columns: Sequence[str] = ()
    """The columns whose texts and bytes are stored, also inside nested values. The default is all columns."""
    over: str = field(default="1MiB", metadata={"like": "64KiB"})
    """The size over which a value is stored."""
    refuse_over: str | None = field(default="10MiB", metadata={"like": "100MiB"})
    """The size over which the stage refuses the row, once its value is stored. With null it refuses none."""
    retain: str | None = field(default=None, metadata={"like": "90d"})
    """How long a value stays that Wherry no longer needs. By default it stays for ever."""

    def __post_init__(self) -> None:
        _check_place(self)
        over = _check_size("over", self.over)
        most = None if self.refuse_over is None else _check_size("refuse_over", self.refuse_over)
        if over < _LEAST:
            raise ValueError(f"over: expected at least 1KiB, got {self.over!r}")
        if most is not None and most < over:
            raise ValueError(f"refuse_over: expected at least {self.over}, as `over` has it, got {self.refuse_over!r}")
        if self.retain is not None and check_seconds("retain", self.retain) < 86_400:
            raise ValueError(f"retain: expected at least 1d, got {self.retain!r}")

    def apply(self, rows: Rows) -> Rows:
        kinds = _find_columns(self.columns, rows)
        if not kinds:
            return rows
        if rows.claims is False:
            large = f"octet_length({{0}}) > {parse_size(self.over)} OR "
            return _ask_claims(rows, _make_condition(kinds, large), kinds)
        if rows.claims:
            rows = self._store_values(rows, kinds)
        return rows if self.refuse_over is None else rows.refuse(self._make_reason(rows, kinds, self.refuse_over))

    @property
    def keeps_columns(self) -> bool:
        return not self.columns and self.when is None

    def leaves(self, rows: pa.Table) -> bool:
        return rows.nbytes <= parse_size(self.over) and not _has_references(rows)

    def _store_values(self, rows: Rows, kinds: Mapping[str, T.DataType]) -> Rows:
        """Return the rows with references. Before the first stage, the DLQ keeps these as the rows that were read."""
        from stages.claim_worker import make_claim_function

        kind = T.StructType([T.StructField(name, each) for name, each in kinds.items()])
        claim = make_claim_function(ValueClaims(open_store(self.path, self.format)), parse_size(self.over))
        rows, claiming = _ask_workers(rows, kinds, claim, kind)
        asked = rows.attempt({_ANSWER: claiming}, F.lit(None).cast(REASON), {_ANSWER: _ANSWER})
        claimed = asked.select({name: F.col(_ANSWER)[name] if name in kinds else name for name in rows.names})
        return _keep_as_read(claimed) if rows.step == 1 else claimed

    def _make_reason(self, rows: Rows, kinds: Mapping[str, T.DataType], refuse_over: str) -> Column:
        most = parse_size(refuse_over)
        whys = []
        for name, kind in kinds.items():
            largest = _find_largest(rows.column(name), kind)
            size = F.format_number(largest.cast("double"), 0)
            message = F.concat(F.lit(f"column {name}: "), size, F.lit(f" bytes, expected at most {most:,}"))
            whys.append(F.when(largest > most, message))
        message = F.coalesce(*whys)
        return F.when(message.isNotNull(), make_reason("LARGE", message))


@dataclass(frozen=True, kw_only=True)
class Unclaim(Stage, _Storing):
    """Puts values back that `claim` stored, in the place of their references.

    Example:
        unclaim:
          path: claims
    """

    enlarges: ClassVar[bool] = True

    path: str = field(metadata={"path": True})
    """The folder of the store, as `claim` has it."""
    format: Format = "files"
    """How the values are stored, as `claim` has it."""
    columns: Sequence[str] = ()
    """The columns whose references are replaced, also inside nested values. The default is all columns."""

    def __post_init__(self) -> None:
        _check_place(self)

    def apply(self, rows: Rows) -> Rows:
        from stages.claim_worker import make_restore_function

        kinds = _find_columns(self.columns, rows)
        if not kinds:
            return rows
        if rows.claims is False:
            kinds = {name: kind for name, kind in kinds.items() if name not in rows.small}
            return _ask_claims(rows, _make_condition(kinds), kinds) if kinds else rows
        values = T.StructType([T.StructField(name, each) for name, each in kinds.items()])
        kind = T.StructType([T.StructField("values", values), T.StructField("problem", T.StringType())])
        restore = make_restore_function(ValueClaims(open_store(self.path, self.format)))
        problem = F.col(_ANSWER)["problem"]
        why = F.when(problem.isNotNull(), make_reason("CLAIM", F.concat(F.lit("a reference "), problem)))
        rows, restoring = _ask_workers(rows, kinds, restore, kind)
        asked = rows.attempt({_ANSWER: restoring}, why, {_ANSWER: _ANSWER})
        return asked.select({name: F.col(_ANSWER)["values"][name] if name in kinds else name for name in rows.names})

    @property
    def keeps_columns(self) -> bool:
        return not self.columns and self.when is None

    def leaves(self, rows: pa.Table) -> bool:
        return not _has_references(rows)


def open_store(path: str, format: Format = "files") -> ValueStore:  # noqa: A002 -- the option's name
    """Return the store at a place."""
    files: StoreFiles
    if is_store_url(path):
        place, files = canonicalise(path), ObjectFiles(str(path), make_client_arguments(path))
    else:
        place = make_absolute(path).removeprefix("file://")
        files = FolderFiles(place)
    if format == "files":
        return ValueStore(files)
    return TableValues(files, {"table_uri": f"{place}/{TABLE}", "storage_options": get_options(path)})


def _ask_claims(rows: Rows, needed: str, columns: Collection[str]) -> Rows:
    """Make the query raise `LARGE` if the condition, in SQL, is true for a live row.

    Wherry then processes the batch again with `claims`. If the query does not raise, `columns` are `small`.
    """
    small = () if ASIDE in rows.kept else columns
    raises = f"if({LIVE} AND ({needed}), CAST(raise_error('{LARGE}') AS BOOLEAN), {ONCE})"
    return replace(rows, query=rows.query.where(raises), small=rows.small.union(small))


def _keep_as_read(rows: Rows) -> Rows:
    """Make the DLQ keep the rows as they are now as the rows that were read.

    The rows have the columns that were read, with the same types.
    """
    if not rows.explains:
        return rows
    now = compute_once(SqlText(f"if({LIVE}, {make_struct(rows.names)}, {ORIGINAL})"), ORIGINAL)
    others = [name for name in list_columns(rows) if name != ORIGINAL]
    return replace(rows, query=rows.query.select(now, *others))


def _ask_workers(
    rows: Rows, kinds: Mapping[str, T.DataType], function: Callable[..., Iterator[pa.Array]], kind: T.StructType
) -> tuple[Rows, Column]:
    """Return the rows, and a column with the result of the function for these columns of the live rows.

    The function runs in Spark's workers. Only `attempt` can use the column.
    """
    ship_modules(sys.modules[name] for name in _SENT)
    given = F.struct(*[rows.column(name).alias(name) for name in kinds])
    frame, asked = call_in_workers(rows.frame, _ASKED, function, {f"{_ASKED}_row": F.when(rows.live, given)}, kind)
    return rows.with_frame(frame), asked


def _find_columns(columns: Sequence[str], rows: Rows) -> Mapping[str, T.DataType]:
    """Return the columns that contain texts or bytes, with their types.

    Raise ValueError for a chosen column that contains none.
    """
    check_columns(columns, rows)
    kinds = {each.name: each.dataType for each in rows.schema}
    if not columns:
        return {name: kind for name, kind in kinds.items() if not _find_problem(kind)}
    chosen = {rows.spell_name(name): kinds[rows.spell_name(name)] for name in columns}
    for name, kind in chosen.items():
        if problem := _find_problem(kind):
            raise ValueError(f"columns: column {name} is {kind.simpleString()}, {problem}")
    return chosen


def _find_problem(kind: T.DataType) -> str:
    """Return why values of this type are not searched; empty if they are."""
    inner = [each for _, each in walk_types(kind)]
    if any(isinstance(each, T.VariantType) for each in inner):
        return "which has a VARIANT; turn it into text before, with to_json"
    if any(isinstance(each, T.StructType) and len({name.lower() for name in each.names}) < len(each) for each in inner):
        return "which has two fields whose names differ in the case of letters alone"
    return "" if any(map(_is_leaf, inner)) else "which has neither text nor bytes"


def _is_leaf(kind: T.DataType) -> bool:
    return isinstance(kind, T.StringType | T.BinaryType)


def _find_largest(value: Column, kind: T.DataType) -> Column:
    """Return the highest size of the texts and bytes in a value; NULL if it has none."""
    if _is_leaf(kind):
        return _measure(value, kind)
    if isinstance(kind, T.StructType):
        parts = [_find_largest(value[each.name], each.dataType) for each in kind if not _find_problem(each.dataType)]
        return parts[0] if len(parts) == 1 else F.greatest(*parts)
    assert isinstance(kind, T.ArrayType | T.MapType)
    inner, values = (
        (kind.elementType, value) if isinstance(kind, T.ArrayType) else (kind.valueType, F.map_values(value))
    )
    return F.array_max(F.transform(values, lambda each: _find_largest(each, inner)))


def _measure(value: Column, kind: T.DataType) -> Column:
    """Return the size of a value in bytes; for a reference, the size of the value that it stands for."""
    meant = F.try_element_at(F.split(value.cast("string"), ":"), F.lit(3)).try_cast("bigint")
    own = F.octet_length(value).cast("bigint")
    begins = F.startswith(value, F.lit(PREFIX.encode() if isinstance(kind, T.BinaryType) else PREFIX))
    return F.when(begins, F.coalesce(meant, own)).otherwise(own)


def _make_condition(kinds: Mapping[str, T.DataType], other: str = "") -> str:
    """Return SQL that is true if a text or binary in these columns begins like a reference, or meets `other`.

    It is a single text, because each call to the JVM takes time that matters in a small batch.
    """
    return " OR ".join(_find_any(quote_name(name), kind, other) for name, kind in kinds.items())


def _find_any(value: str, kind: T.DataType, other: str, depth: int = 0) -> str:
    if _is_leaf(kind):
        begins = f"X'{PREFIX.encode().hex()}'" if isinstance(kind, T.BinaryType) else f"'{PREFIX}'"
        return f"{other.format(value)}startswith({value}, {begins})"
    if isinstance(kind, T.StructType):
        fields = [each for each in kind if not _find_problem(each.dataType)]
        return " OR ".join(
            _find_any(f"{value}.{quote_name(each.name)}", each.dataType, other, depth) for each in fields
        )
    assert isinstance(kind, T.ArrayType | T.MapType)
    inner, values = (
        (kind.elementType, value) if isinstance(kind, T.ArrayType) else (kind.valueType, f"map_values({value})")
    )
    return f"exists({values}, {HIDDEN}{depth} -> {_find_any(f'{HIDDEN}{depth}', inner, other, depth + 1)})"


def _has_references(rows: pa.Table) -> bool:
    """Return whether any bytes in the table look like a reference."""
    chunks = [chunk for column in rows.columns for chunk in column.chunks]
    buffers = (buffer for chunk in chunks for buffer in chunk.buffers() if buffer is not None)
    return any(PREFIX.encode() in buffer.to_pybytes() for buffer in buffers)


def _check_place(stage: Claim | Unclaim) -> None:
    path, columns = stage.path, stage.columns
    if not isinstance(path, str) or not path:
        raise ValueError(f"path: expected a folder or a URL, got {path!r}")
    if path.startswith("hdfs:"):
        raise ValueError(
            f"path: expected a folder, s3://, abfss:// or gs://, since workers do not reach HDFS, got {path!r}"
        )
    if stage.format not in get_args(Format):
        raise ValueError(f"format: expected {' or '.join(get_args(Format))}, got {stage.format!r}")
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise ValueError(f"columns: expected a list of columns, got {columns!r}")
    check_names("columns", columns)


def _check_size(option: str, text: object) -> int:
    try:
        return parse_size(str(text))
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error
