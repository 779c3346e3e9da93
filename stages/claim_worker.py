"""Replacement of large values in rows by references, and of references by their values.

This code runs in Spark's Python workers. Like `claim_store.py` it is sent there by value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from stages.claim_store import PREFIX, ValueClaims

_RESTORED_ROWS = 16
"""The number of rows that are restored at a time."""


def claim_rows(claims: ValueClaims, over: int, rows: pa.StructArray) -> pa.StructArray:
    """Return the rows, with a reference in place of each value of more than `over` bytes.

    A value that only looks like a reference is stored too. So every value that begins like a reference afterwards is
    one.
    """

    def claim(value: bytes, _: int) -> bytes:
        if len(value) <= over and claims.is_reference(value):
            return value
        return claims.store_value(value).encode()

    claimed = replace_leaves(rows, over, claim)
    claims.store.settle()
    return claimed


def restore_rows(claims: ValueClaims, rows: pa.StructArray) -> Iterator[pa.StructArray]:
    """Yield pieces of the rows as `values`, with references replaced by their values.

    `problem` is why a reference has no value. A piece has only a few rows, since they may be large.
    """
    marked = [False] * len(rows)

    def mark(value: bytes, row: int) -> bytes:
        marked[row] = True
        return value

    replace_leaves(rows, None, mark)
    size = _RESTORED_ROWS if any(marked) else max(1, len(rows))
    for first in range(0, len(rows), size):
        piece = pa.concat_arrays([rows.slice(first, size)])
        problems: dict[int, str] = {}

        def restore(value: bytes, row: int, problems: dict[int, str] = problems) -> bytes:
            found = claims.find_value(value)
            if isinstance(found, bytes):
                return found
            problems.setdefault(row, found)
            return value

        values = replace_leaves(piece, None, restore)
        messages = pa.array([problems.get(row) for row in range(len(piece))], pa.string())
        yield pa.StructArray.from_arrays([values, messages], names=["values", "problem"])


Replace = Callable[[bytes, int], bytes]
"""A function that returns the replacement of a value, given the value and the number of its row."""


def replace_leaves(rows: pa.StructArray, over: int | None, replace: Replace) -> pa.StructArray:
    """Return the rows with some texts and binaries replaced, at any depth.

    A value is replaced if it begins like a reference or has more than `over` bytes. Keys of maps are not replaced.
    """
    return _replace(rows, pa.array(range(len(rows)), pa.int64()), over, replace)


def _replace(array: pa.Array, owners: pa.Array, over: int | None, replace: Replace) -> pa.Array:
    kind = array.type
    if _is_leaf(kind):
        return _replace_values(array, owners, over, replace)
    if not _has_leaves(kind):
        return array
    if pa.types.is_struct(kind):
        parts = [_replace(array.field(at), owners, over, replace) for at in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=array.is_null())
    array = pa.concat_arrays([array]) if array.offset else array
    lengths = [0 if each is None else each for each in pc.list_value_length(_as_list(array)).to_pylist()]
    offsets, inner = [0], []
    for owner, length in zip(owners.to_pylist(), lengths, strict=True):
        offsets.append(offsets[-1] + length)
        inner += [owner] * length
    entries = _as_list(array).flatten()
    mask = array.is_null()
    if pa.types.is_map(kind):
        items = _replace(entries.field(1), pa.array(inner, pa.int64()), over, replace)
        return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), entries.field(0), items, type=kind, mask=mask)
    values = _replace(entries, pa.array(inner, pa.int64()), over, replace)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=kind, mask=mask)


def _replace_values(array: pa.Array, owners: pa.Array, over: int | None, replace: Replace) -> pa.Array:
    raw = array.view(pa.large_binary() if _is_long(array.type) else pa.binary())
    wanted = pc.starts_with(raw, PREFIX.encode())
    if over is not None:
        wanted = pc.or_(wanted, pc.greater(pc.binary_length(raw), over))
    wanted = wanted.fill_null(False)  # noqa: FBT003 -- the parameter has no name
    places = pc.indices_nonzero(wanted).to_pylist()
    if not places:
        return array
    new = [replace(raw[at].as_py(), owners[at].as_py()) for at in places]
    replaced = pc.replace_with_mask(raw, wanted, pa.array(new, raw.type))
    return replaced.view(array.type)


def _as_list(array: pa.Array) -> pa.ListArray:
    """Return a map as the list of its entries; a list is returned unchanged."""
    if not pa.types.is_map(array.type):
        return array
    entries = pa.StructArray.from_arrays([array.keys, array.items], names=["key", "value"])
    return pa.ListArray.from_arrays(array.offsets, entries, mask=array.is_null())


def _is_leaf(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or _is_long(kind))


def _is_long(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def _has_leaves(kind: pa.DataType) -> bool:
    inner: Sequence[pa.DataType] = [kind.field(at).type for at in range(kind.num_fields)]
    if pa.types.is_map(kind):
        inner = [kind.item_type]
    return any(_is_leaf(each) or _has_leaves(each) for each in inner)


def make_claim_function(claims: ValueClaims, over: int) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
    """Return `claim_rows` as a function whose hints show Spark how to call it."""

    def claim(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return (claim_rows(claims, over, rows) for rows in batches)

    return claim


def make_restore_function(claims: ValueClaims) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
    """Return `restore_rows` as such a function."""

    def restore(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return (piece for rows in batches for piece in restore_rows(claims, rows))

    return restore
