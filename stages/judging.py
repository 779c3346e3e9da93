"""From what a Python function answered to what becomes of each row, and to the columns that leave.

Like `calling.py` it is sent to Spark's Python workers by value.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stages.answer import ANSWER_CODE, Answer, as_text, shown
from stages.calling import Call
from stages.frames import Frame, listed

if TYPE_CHECKING:
    import pyarrow as pa

_STATE = ("fate", "code", "message")


def judged(call: Call, rows: pa.Table, schema: str) -> pa.StructArray:
    """What the function says of each row: `fate` (`go`, `discard` or `nack`), `code`, `message`, and the `values` that
    leave, in these columns (Spark's JSON). A row that it answers with what is no answer is refused."""
    import pyarrow as pa

    answers = call.answers(rows)
    fates: list[Answer | None]
    changed: list[Mapping[str, Any]]
    columns: Mapping[str, Any] = {}
    if isinstance(answers, Frame):
        fates = [None if each is None else _fate(each) for each in answers.verdicts]
        changed, columns = [{} for _ in fates], answers.columns
    else:
        fates, changed = [*map(_fate, answers)], [*map(_values, answers)]
    fields = arrow_schema(schema)
    names = {field.name.lower(): field.name for field in fields}
    for at, values in enumerate(changed):
        strange = next((name for name in [*columns, *values] if name not in names), None)
        if strange is not None and fates[at] is None:
            fates[at] = _refused(_no_column(strange, names))
    arrays = []
    for field in fields:
        array, problems = _fitted(_column(field.name, rows, fates, changed, columns), field)
        arrays.append(array)
        for at, said in problems.items():
            fate = fates[at]
            if fate is None or fate.fate == "keep":
                fates[at] = _refused(said)
    told = [fate if fate is not None and fate.fate != "keep" else None for fate in fates]
    state = [
        pa.array([fate.fate if fate else "go" for fate in told], pa.string()),
        pa.array([as_text(fate.code) if fate else None for fate in told], pa.string()),
        pa.array([as_text(fate.message) if fate else None for fate in told], pa.string()),
    ]
    values = pa.StructArray.from_arrays(arrays, fields=list(fields))
    return pa.StructArray.from_arrays([*state, values], names=[*_STATE, "values"])


def arrow_schema(schema: str) -> pa.Schema:
    """The columns of Spark's JSON as Arrow has them."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    return to_arrow_schema(StructType.fromJson(json.loads(schema)), timezone="UTC")


def answer_type(schema: str) -> pa.DataType:
    """The type of what `judged` gives."""
    import pyarrow as pa

    text = [pa.field(name, pa.string()) for name in _STATE]
    return pa.struct([*text, pa.field("values", pa.struct(list(arrow_schema(schema))))])


def _fate(answer: Any) -> Answer | None:
    """What becomes of the row; None if it goes on changed."""
    if getattr(answer, "fate", None) in ("keep", "discard", "nack"):
        return Answer(fate=answer.fate, message=answer.message, code=answer.code)
    if isinstance(answer, Mapping):
        return None
    return _refused(f"the answer is {shown(answer)}; expected a dict, keep, discard or nack(why)")


def _values(answer: Any) -> Mapping[str, Any]:
    return {str(name).lower(): value for name, value in answer.items()} if isinstance(answer, Mapping) else {}


def _refused(why: str) -> Answer:
    return Answer(fate="nack", message=why, code=ANSWER_CODE)


def _no_column(name: str, names: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"did you mean '{names[near[0]]}'?" if near else "a new one is named in the stage's columns"
    return f"the answer has '{name}', which is no column; {meant}"


def _column(
    name: str, rows: pa.Table, fates: Sequence[Any], changed: Sequence[Mapping[str, Any]], columns: Mapping[str, Any]
) -> Any:
    """The column as it leaves: Arrow's where nobody has to look at each value, else a list. A row that is not changed
    has what it came with."""
    key = name.lower()
    before = rows[name] if name in rows.column_names else None
    answered = columns.get(key)
    if answered is not None and all(fate is None for fate in fates):
        return answered
    if answered is None and before is not None and not any(key in values for values in changed):
        return before
    old = before.to_pylist(maps_as_pydicts="strict") if before is not None else [None] * rows.num_rows
    if answered is None:
        return [values.get(key, old[at]) for at, values in enumerate(changed)]
    new = listed(answered)
    return [new[at] if fate is None else old[at] for at, fate in enumerate(fates)]


def _fitted(values: Any, field: pa.Field) -> tuple[pa.Array, Mapping[int, str]]:
    """The values as their column's type; NULL for one that is not, and what is wrong with it."""
    import pyarrow as pa

    wrong = (pa.ArrowException, TypeError, ValueError, ArithmeticError)
    try:
        return _converted(values, field.type), {}
    except wrong:
        given = listed(values)
    problems, fitting = {}, []
    for at, value in enumerate(given):
        try:
            _converted([value], field.type)
            fitting.append(value)
        except wrong:
            problems[at] = f"{field.name}: {shown(value)} is not a {field.type}"
            fitting.append(None)
    return _converted(fitting, field.type), problems


def _converted(values: Any, kind: pa.DataType) -> pa.Array:
    """The values as this type. Raises where that would change one."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        if pa.types.is_string(kind) and not _is_text(values.type):
            raise TypeError(f"{values.type} is not text")
        return values.cast(kind)
    if not isinstance(values, list):
        return pa.Array.from_pandas(values, type=kind)
    if pa.types.is_integer(kind) and not all(getattr(value, "is_integer", lambda: True)() for value in values):
        raise ValueError("not a whole number")
    return pa.array(values, kind)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))
