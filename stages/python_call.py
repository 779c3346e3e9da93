"""Calls of a Python function with several rows, and the verdict on each row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from stages.bisection import AttemptRaised

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class FrameAnswer:
    """An answer in columns: Arrow arrays, pandas Series or lists, in the order of the rows."""

    columns: Mapping[str, Any]
    verdicts: Sequence[Any]
    """The outcome of each row; None if it continues."""


def as_pandas(rows: pa.Table) -> Any:
    """Return the rows as a DataFrame. Whole numbers with NULLs among them stay whole numbers, so that none is rounded.

    Its labels are 0, 1, 2 and so on. Its index has a name, which a fresh index does not have.
    """
    import pandas as pd
    import pyarrow as pa

    whole = {getattr(pa, f"int{bits}")(): getattr(pd, f"Int{bits}Dtype")() for bits in (8, 16, 32, 64)}

    def series(column: Any) -> Any:
        mapper = whole.get if column.null_count else None
        return column.to_pandas(types_mapper=mapper, use_threads=False, maps_as_pydicts="strict")

    frame = pd.DataFrame({name: series(rows[name]) for name in rows.column_names})
    return frame.rename_axis(_choose_index_name(rows))


def _choose_index_name(rows: pa.Table) -> str:
    """Return the name that `reset_index()` gives to the labels by default, unless a column has it."""
    name = "index"
    while name in rows.column_names:
        name = f"_{name}"
    return name


def is_frame(value: Any) -> bool:
    module = type(value).__module__.partition(".")[0]
    return (module, type(value).__name__) in (("pandas", "DataFrame"), ("pyarrow", "Table"))


def is_series(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas" and type(value).__name__ == "Series"


def align_frame(frame: Any, rows: pa.Table, verdicts: Any, name: str) -> FrameAnswer:
    """Return the answer of the function of this name for these rows. A row that a DataFrame leaves out is discarded."""
    count = rows.num_rows
    if not hasattr(frame, "index"):
        if len(frame) != count:
            raise AttemptRaised(f"{name} returned {len(frame)} rows for {count}; expected one for each", ANSWER_CODE)
        places, columns = [*range(count)], _columns_by_name(frame, frame.column_names, name)
    else:
        places, columns = find_places(frame, rows, name), _columns_by_name(frame, frame.columns, name)
    if places != [*range(count)]:
        columns = {key: _place_values(places, to_list(values), count, None) for key, values in columns.items()}
    fates = _place_values(places, [None] * len(places), count, discard)
    if is_series(verdicts) and verdicts.index.name == _choose_index_name(rows):
        for at, verdict in zip(find_places(verdicts, rows, name), to_list(verdicts), strict=True):
            fates[at] = fates[at] if verdict is None else verdict
    elif verdicts is not None:
        given = list_values(verdicts, name, "a list with one verdict for each row")
        if len(given) != len(places):
            message = f"{name} returned {len(given)} verdicts for {len(places)} rows; expected one for each"
            raise AttemptRaised(message, ANSWER_CODE)
        fates = _place_values(places, given, count, discard)
    return FrameAnswer(columns=columns, verdicts=fates)


def find_places(answer: Any, rows: pa.Table, name: str) -> list[int]:
    """Return the places, from 0, of the rows that a DataFrame or a Series answers, in its order.

    The original index identifies the rows, even if it is reordered or incomplete. A fresh index (0, 1, 2 and so on,
    without a name) identifies none, so it needs one label for each row. Raise `AttemptRaised` for any other index.
    """
    count, given = rows.num_rows, _choose_index_name(rows)
    labels: list[int] = answer.index.tolist()
    if answer.index.name == given:
        known = all(type(label) is int and 0 <= label < count for label in labels)
        if known and len({*labels}) == len(labels):
            return labels
        why = "its index names a row twice" if known else "its index names rows that do not exist"
    elif answer.index.name is None and labels == [*range(count)]:
        return labels
    elif len(labels) == count:
        why = "its index is neither that of the given rows nor a fresh one"
    else:
        why = "expected one for each, or the index of the given rows"
    raise AttemptRaised(f"{name} returned {len(labels)} rows for {count}; {why}", ANSWER_CODE)


def list_values(values: Any, name: str, expected: str) -> list[Any]:
    """Return the returned values as a list.

    Raise `AttemptRaised` for a value without an order, and for a single value.
    """
    if isinstance(values, str | bytes | Mapping | AbstractSet) or not isinstance(values, Iterable):
        raise AttemptRaised(f"{name} returned {show_value(values)}; expected {expected}", ANSWER_CODE)
    return list(values)


def _columns_by_name(frame: Any, names: Iterable[Any], name: str) -> dict[str, Any]:
    keys = [str(each).lower() for each in names]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise AttemptRaised(f"{name} returned the column '{twice}' twice", ANSWER_CODE)
    return {key: frame[each] for key, each in zip(keys, names, strict=True)}


def _place_values(places: Sequence[int], values: Sequence[Any], count: int, other: Any) -> list[Any]:
    """Return the values at their places, and `other` at all other places."""
    found = [other] * count
    for at, value in zip(places, values, strict=True):
        found[at] = value
    return found


def to_list(values: Any) -> list[Any]:
    """Return the values as Python values. pandas' missing values become None."""
    if isinstance(values, list):
        return values
    if hasattr(values, "to_pylist"):
        return read_arrow(values)
    missing = values.isna().tolist()
    return [None if gone else value for value, gone in zip(values.tolist(), missing, strict=True)]


def read_arrow(values: Any) -> list[Any]:
    """Return the values of a column, or the rows of a table, as Python values. Maps become dicts."""
    import pyarrow as pa

    if int(pa.__version__.partition(".")[0]) >= 20:
        return list(values.to_pylist(maps_as_pydicts="strict"))
    if isinstance(values, pa.Table):
        columns = [read_arrow(column) for column in values.columns]
        return [dict(zip(values.column_names, row, strict=True)) for row in zip(*columns, strict=True)]
    return [_put_dicts(value, values.type) for value in values.to_pylist()]


def _put_dicts(value: Any, kind: pa.DataType) -> Any:
    """Return the value with a dict in the place of each map, which pyarrow before 20 gives as pairs."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_map(kind):
        found = {key: _put_dicts(item, kind.item_type) for key, item in value}
        if len(found) < len(value):
            raise KeyError(f"a map has a key twice: {[key for key, _ in value]}")
        return found
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_put_dicts(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {field.name: _put_dicts(value[field.name], field.type) for field in kind}
    return value


Takes: TypeAlias = Literal["dicts", "row", "pandas", "arrow"]
"""The form in which a function takes rows: a list of dicts; one dict, in an `async def`; a `pandas.DataFrame`; a
`pyarrow.Table`."""

_AWAY = (
    "ConnectionError", "ConnectTimeout", "ConnectError", "TimeoutError", "ReadTimeout", "NewConnectionError",
    "ClientConnectorError", "ServerDisconnectedError", "gaierror",
)  # fmt: skip
"""The errors with which a function reports an unreachable server. They are never a row's fault."""
_BUSY = (429, 502, 503, 504)
"""The HTTP status codes of a server that cannot answer now."""


class ConnectionErrorInFunction(Exception):
    """A server that a function calls is unreachable or too busy. Wherry tries the batch again."""


class FunctionCannotRun(Exception):
    """A function lacks something that it needs for every row."""


@dataclass(frozen=True, kw_only=True)
class FunctionCall:
    """A function and the way to call it."""

    function: Callable[..., Any]
    name: str
    takes: Takes
    concurrency: int
    seconds: float

    def call_function(self, rows: pa.Table) -> Any:
        """Return one answer for each row, in order: a list, or a `FrameAnswer`.

        Raise `AttemptRaised` for an error that may be a row's fault, and another error otherwise.
        """
        try:
            return _align_answers(self._call_once(rows), rows, self.name)
        except AttemptRaised:
            raise
        except BaseException as error:
            raise self._describe_error(error) from error

    def _call_once(self, rows: pa.Table) -> Any:
        if self.takes == "pandas":
            return self.function(as_pandas(rows))
        if self.takes == "arrow":
            return self.function(rows)
        dicts = read_arrow(rows)
        if self.takes == "dicts":
            return self.function(dicts)
        import asyncio  # takes longer than everything else in this file

        return asyncio.run(self._call_each(dicts))

    async def _call_each(self, rows: list[dict[str, Any]]) -> list[Any]:
        import asyncio

        free = asyncio.Semaphore(self.concurrency)

        async def one(row: dict[str, Any]) -> Any:
            async with free:
                task = asyncio.ensure_future(self.function(row))
                done, _ = await asyncio.wait([task], timeout=self.seconds)
                if not done:
                    task.cancel()
                    message = f"{self.name} did not return within {self.seconds:g} s"
                    return Answer(fate="nack", message=message, code=RAISED_CODE)
                try:
                    return task.result()
                except BaseException as error:
                    described = self._describe_error(error)
                    if not isinstance(described, AttemptRaised):
                        raise described from error
                    return Answer(fate="nack", message=described.message, code=described.code)

        return list(await asyncio.gather(*map(one, rows)))

    def _describe_error(self, error: BaseException) -> Exception:
        chain = list(_walk_causes(error))
        message = as_text(f"{self.name} raised {type(error).__name__}: {as_text(error)}")
        if any(isinstance(each, FunctionCannotRun | ConnectionErrorInFunction) for each in chain):
            return chain[0] if isinstance(chain[0], Exception) else FunctionCannotRun(message)
        if any(isinstance(each, ImportError) for each in chain):
            return FunctionCannotRun(f"{message}; Spark's Python workers need the package too")
        if any(_is_away(each) for each in chain):
            return ConnectionErrorInFunction(message)
        return AttemptRaised(message, RAISED_CODE)


def _walk_causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        reason = _get_attribute(error, "reason")
        error = error.__cause__ or (reason if isinstance(reason, BaseException) else error.__context__)


def _is_away(error: BaseException) -> bool:
    response = _get_attribute(error, "response")
    states = [_get_attribute(error, "code"), _get_attribute(response, "status_code"), _get_attribute(error, "status")]
    names = [kind.__name__ for kind in type(error).__mro__]
    busy = any(isinstance(each, int) and each in _BUSY for each in states)
    return busy or any(name in _AWAY for name in names)


def _get_attribute(thing: Any, name: str) -> Any:
    """Return the attribute; None if it is missing or raises an error."""
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 -- the attribute is the user's, and may raise anything
        return None


def _align_answers(returned: Any, rows: pa.Table, name: str) -> Any:
    """Return the returned frame as a `FrameAnswer`, or a list with one answer for each row."""
    verdicts = None
    if isinstance(returned, tuple) and len(returned) == 2 and is_frame(returned[0]):
        returned, verdicts = returned
    if is_frame(returned):
        return align_frame(returned, rows, verdicts, name)
    if is_series(returned):
        given = dict(zip(find_places(returned, rows, name), to_list(returned), strict=True))
        return [_to_plain(given.get(at, discard)) for at in range(rows.num_rows)]
    answers = [_to_plain(answer) for answer in list_values(returned, name, "a list with one answer for each row")]
    if len(answers) != rows.num_rows:
        message = f"{name} returned {len(answers)} answers for {rows.num_rows} rows; expected one for each"
        raise AttemptRaised(message, ANSWER_CODE)
    return answers


def _to_plain(answer: Any) -> Any:
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type) and not hasattr(answer, "fate"):
        return {field.name: getattr(answer, field.name) for field in dataclasses.fields(answer)}
    return answer


NACK_CODE = "PYTHON"
ANSWER_CODE = "ANSWER"
RAISED_CODE = "RAISED"
LOST_CODE = "LOST"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The outcome of a row."""

    fate: Literal["keep", "discard", "nack"]
    message: str = ""
    code: str = ""


keep = Answer(fate="keep")
"""The row continues unchanged."""
discard = Answer(fate="discard")
"""The row is not wanted. It is removed and counts as filtered."""


def nack(why: str, *, code: str = NACK_CODE) -> Answer:
    """Return an answer that refuses the row with this reason."""
    return Answer(fate="nack", message=as_text(why), code=as_text(code))


def as_text(value: Any) -> str:
    """Return the value as valid UTF-8 text.

    A lone surrogate is escaped. A value that cannot be shown becomes its type.
    """
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 -- the value is the user's, and may raise anything
        text = f"a {type(value).__name__} that cannot be shown"
    return _escape(text)


def show_value(value: Any) -> str:
    """Return the text of a function's value for a message."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 -- the value is the user's, and may raise anything
        text = f"a {type(value).__name__}"
    return _escape(text if len(text) <= 80 else text[:80] + "…")


def _escape(text: str) -> str:
    return str.encode(text, "utf-8", "backslashreplace").decode()
