"""Calling a Python function with some rows, in whatever way it takes them, and what it says of each.

This runs where Spark's Python workers run, and is sent there by value: it imports nothing of ours but what is sent too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from stages.answer import ANSWER_CODE, RAISED_CODE, Answer, as_text, discard
from stages.frames import as_pandas, framed, is_frame, is_series, listed, one_by_one, places_of
from stages.halving import Raised

if TYPE_CHECKING:
    import pyarrow as pa

Takes: TypeAlias = Literal["dicts", "row", "pandas", "arrow"]
"""A list of dicts; one dict, in an `async def`; a `pandas.DataFrame`; a `pyarrow.Table`."""

_AWAY = (
    "ConnectionError", "ConnectTimeout", "ConnectError", "TimeoutError", "ReadTimeout", "NewConnectionError",
    "ClientConnectorError", "ServerDisconnectedError", "gaierror",
)  # fmt: skip
"""Errors by which a function says that a server is away; never a row's fault."""
_BUSY = (429, 502, 503, 504)
"""The answers of HTTP by which a server says that it cannot answer now."""


class ConnectionErrorInFunction(Exception):
    """A server that a function asks is away or too busy; the batch is tried again."""


class FunctionCannotRun(Exception):
    """A function lacks what it needs, for all rows alike."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """How a function is called."""

    function: Callable[..., Any]
    name: str
    takes: Takes
    concurrency: int
    seconds: float

    def answers(self, rows: pa.Table) -> Any:
        """One answer for each row, in order: a list, or a `Frame`.

        Raises `Raised` for what may be a row's fault, and another error for what is not.
        """
        try:
            return _sorted(self._returned(rows), rows, self.name)
        except Raised:
            raise
        except BaseException as error:
            raise self._told(error) from error

    def _returned(self, rows: pa.Table) -> Any:
        if self.takes == "pandas":
            return self.function(as_pandas(rows))
        if self.takes == "arrow":
            return self.function(rows)
        dicts = rows.to_pylist(maps_as_pydicts="strict")
        return self._one_by_one(dicts) if self.takes == "row" else self.function(dicts)

    def _one_by_one(self, rows: list[dict[str, Any]]) -> list[Any]:
        import asyncio

        return asyncio.run(self._each(rows))

    async def _each(self, rows: list[dict[str, Any]]) -> list[Any]:
        import asyncio

        free = asyncio.Semaphore(self.concurrency)

        async def one(row: dict[str, Any]) -> Any:
            async with free:
                task = asyncio.ensure_future(self.function(row))
                done, _ = await asyncio.wait([task], timeout=self.seconds)
                if not done:
                    task.cancel()
                    said = f"{self.name} did not come back within {self.seconds:g} s"
                    return Answer(fate="nack", message=said, code=RAISED_CODE)
                try:
                    return task.result()
                except BaseException as error:
                    told = self._told(error)
                    if not isinstance(told, Raised):
                        raise told from error
                    return Answer(fate="nack", message=told.said, code=told.code)

        return list(await asyncio.gather(*map(one, rows)))

    def _told(self, error: BaseException) -> Exception:
        chain = list(_chain(error))
        said = as_text(f"{self.name} raised {type(error).__name__}: {as_text(error)}")
        if any(isinstance(each, FunctionCannotRun | ConnectionErrorInFunction) for each in chain):
            return chain[0] if isinstance(chain[0], Exception) else FunctionCannotRun(said)
        if any(isinstance(each, ImportError) for each in chain):
            return FunctionCannotRun(f"{said}; Spark's Python workers need it too")
        if any(_is_away(each) for each in chain):
            return ConnectionErrorInFunction(said)
        return Raised(said, RAISED_CODE)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        reason = _attribute(error, "reason")
        error = error.__cause__ or (reason if isinstance(reason, BaseException) else error.__context__)


def _is_away(error: BaseException) -> bool:
    response = _attribute(error, "response")
    states = [_attribute(error, "code"), _attribute(response, "status_code"), _attribute(error, "status")]
    names = [kind.__name__ for kind in type(error).__mro__]
    busy = any(isinstance(each, int) and each in _BUSY for each in states)
    return busy or any(name in _AWAY for name in names)


def _attribute(thing: Any, name: str) -> Any:
    """The attribute; None where there is none, or where it raises."""
    try:
        return getattr(thing, name, None)
    except Exception:
        return None


def _sorted(returned: Any, rows: pa.Table, name: str) -> Any:
    """What was returned: a frame, or an answer for each row."""
    verdicts = None
    if isinstance(returned, tuple) and len(returned) == 2 and is_frame(returned[0]):
        returned, verdicts = returned
    if is_frame(returned):
        return framed(returned, rows, verdicts, name)
    if is_series(returned):
        given = dict(zip(places_of(returned, rows, name), listed(returned), strict=True))
        return [_plain(given.get(at, discard)) for at in range(rows.num_rows)]
    answers = [_plain(answer) for answer in one_by_one(returned, name, "a list with one answer for each row")]
    if len(answers) != rows.num_rows:
        said = f"{name} gave {len(answers)} answers for {rows.num_rows} rows; expected one for each"
        raise Raised(said, ANSWER_CODE)
    return answers


def _plain(answer: Any) -> Any:
    """A dataclass as a dict."""
    if dataclasses.is_dataclass(answer) and not isinstance(answer, type) and not hasattr(answer, "fate"):
        return {field.name: getattr(answer, field.name) for field in dataclasses.fields(answer)}
    return answer
