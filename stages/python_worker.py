"""The answers of a Python function to the rows of a batch, in a separate process, and the verdict on each row.

This code runs in Spark's Python workers. Like `python_call.py` it is sent there by value.
"""

from __future__ import annotations

import difflib
import json
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from multiprocessing.connection import Connection, Pipe
from typing import Any

import pyarrow as pa

from origins.spark_versions import make_arrow_schema as convert_schema
from stages.bisection import AttemptRaised, bisect_rows
from stages.python_call import (
    ANSWER_CODE,
    LOST_CODE,
    Answer,
    ConnectionErrorInFunction,
    FrameAnswer,
    FunctionCall,
    FunctionCannotRun,
    as_text,
    read_arrow,
    show_value,
    to_list,
)

_DYING = 2.0
"""The seconds that may pass between the moment at which a process closes its pipe and its end."""


class WorkerLost(Exception):
    """The process has died, or did not answer in time."""


class WorkerProcess:
    """A process that answers with `serve`. It is forked at the first question, and again after it was lost.

    It ends with this process, even in the middle of a question.
    """

    def __init__(self, serve: Callable[[bytes], bytes]) -> None:
        self._serve = serve
        self._process = 0
        self._pipe: Connection | None = None
        self._life = -1

    def ask(self, question: bytes, seconds: float) -> bytes:
        """Return the answer of `serve`.

        Raise `WorkerLost` if the process ends or does not answer within this number of seconds.
        """
        pipe = self._pipe or self._begin()
        try:
            pipe.send_bytes(question)
            if pipe.poll(seconds):
                return pipe.recv_bytes()
        except (EOFError, OSError):
            raise WorkerLost(f"ended the process of the call ({self.end(patience=_DYING)})") from None
        self.end()
        raise WorkerLost(f"did not return within {seconds:g} s")

    def end(self, *, patience: float = 0.0) -> str:
        """End the process, and return how it ended, in words. It has `patience` seconds to end by itself."""
        if self._pipe is None:
            return ""
        last = time.monotonic() + patience
        ended, status = os.waitpid(self._process, os.WNOHANG)
        while not ended and time.monotonic() < last:
            time.sleep(0.002)
            ended, status = os.waitpid(self._process, os.WNOHANG)
        if not ended:
            os.kill(self._process, signal.SIGKILL)
            _, status = os.waitpid(self._process, 0)
        self._pipe.close()
        os.close(self._life)
        self._pipe = None
        code = os.waitstatus_to_exitcode(status)
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def _begin(self) -> Connection:
        here, there = Pipe()
        living, life = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # no other code runs in this process during a question
            process = os.fork()
        if process == 0:
            try:
                here.close()
                os.close(life)
                self._work(there, living)
            finally:
                os._exit(70)
        there.close()
        os.close(living)
        self._process, self._pipe, self._life = process, here, life
        return here

    def _work(self, pipe: Connection, living: int) -> None:
        def follow() -> None:
            os.read(living, 1)
            os._exit(0)

        os.dup2(2, 1)
        threading.Thread(target=follow, daemon=True).start()
        while True:
            pipe.send_bytes(self._serve(pipe.recv_bytes()))


MOST_LOST = 50
"""The most rows of a task that may end or block their process. With more, the function is to blame and the batch
fails."""


@dataclass(frozen=True, kw_only=True)
class RowAnswerer:
    """An object that gets the answers to rows, several rows at a time."""

    call: FunctionCall
    schema: str
    """The columns after the stage, as Spark's JSON."""
    rows: int
    """The most rows that the function gets at a time."""

    def answer_batches(self, batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        """Yield the verdicts (`judge_answers`) of each batch, which is given as rows and as whether each row is live.

        The verdict is NULL for a row that is not live.
        """
        child = WorkerProcess(self._serve)
        try:
            for live, rows in batches:
                wanted = rows.filter(live)
                parts = [wanted.slice(first, self.rows) for first in range(0, len(wanted), self.rows)]
                pieces = [piece for part in parts for piece in self._answer_pieces(child, part)]
                yield self._join_answers(live, pieces)
        finally:
            child.end()

    def _answer_pieces(self, child: WorkerProcess, rows: pa.Array) -> Iterator[pa.Array]:
        lost = 0
        for _, _, piece in bisect_rows(len(rows), lambda first, end: self._ask(child, rows.slice(first, end - first))):
            if isinstance(piece, AttemptRaised):
                lost += piece.code == LOST_CODE
                if lost > MOST_LOST:
                    raise FunctionCannotRun(
                        f"more than {MOST_LOST} of {len(rows)} rows fail like this: {piece.message}"
                    )
                answer = {"fate": "nack", "code": piece.code, "message": as_text(piece.message), "values": None}
                piece = pa.array([answer], answer_type(self.schema))
            yield piece

    def _ask(self, child: WorkerProcess, rows: pa.Array) -> pa.Array:
        call = self.call
        turns = -(-len(rows) // call.concurrency) if call.takes == "row" else 1
        try:
            reply = child.ask(_pack(rows), call.seconds * turns + (call.takes == "row"))
        except WorkerLost as lost:
            raise AttemptRaised(f"{call.name} {lost}", LOST_CODE) from lost
        if reply[:1] == b"A":
            return _unpack(reply[1:])
        arguments = json.loads(reply[1:])
        if reply[:1] == b"R":
            raise AttemptRaised(*arguments)
        raise (ConnectionErrorInFunction if reply[:1] == b"C" else FunctionCannotRun)(*arguments)

    def _serve(self, question: bytes) -> bytes:
        """Return the reply of the child process: rows, or the error that was raised."""
        try:
            rows = pa.Table.from_batches([pa.RecordBatch.from_struct_array(_unpack(question))])
            return b"A" + _pack(judge_answers(self.call, rows, self.schema))
        except AttemptRaised as error:
            return b"R" + json.dumps([error.message, error.code]).encode()
        except ConnectionErrorInFunction as error:
            return b"C" + json.dumps([str(error)]).encode()
        except FunctionCannotRun as error:
            return b"F" + json.dumps([str(error)]).encode()
        except Exception as error:  # noqa: BLE001 -- an answer may run any code while it is read
            message = (
                f"{self.call.name} returned an answer that cannot be read: {type(error).__name__}: {as_text(error)}"
            )
            return b"R" + json.dumps([message, ANSWER_CODE]).encode()

    def _join_answers(self, live: pa.Array, pieces: Sequence[pa.Array]) -> pa.Array:
        answers = pa.chunked_array(pieces, answer_type(self.schema)).combine_chunks()
        place = iter(range(len(answers)))
        return answers.take(pa.array([next(place) if each else None for each in live.to_pylist()], pa.int64()))


def make_answer_function(answering: RowAnswerer) -> Callable[[Iterator[tuple[pa.Array, pa.Array]]], Iterator[pa.Array]]:
    """Return a function with hints that show Spark how to call it."""

    def answers(batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        return answering.answer_batches(batches)

    return answers


def _pack(rows: pa.Array) -> bytes:
    # pyarrow before 20 loses the place of a slice in `from_struct_array`.
    batch = pa.RecordBatch.from_arrays(rows.flatten(), schema=pa.schema(list(rows.type)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def _unpack(content: bytes) -> pa.Array:
    return pa.ipc.open_stream(content).read_next_batch().to_struct_array()


_MOST_DIGITS = 38
"""The digits of the longest decimal. pyarrow looks beyond its table at a larger exponent."""
_STATE = ("fate", "code", "message")


def judge_answers(call: FunctionCall, rows: pa.Table, schema: str) -> pa.StructArray:
    """Return the verdict on each row: `fate` (`go`, `discard` or `nack`), `code`, `message` and `values`.

    `values` are the columns after the stage (`schema`, Spark's JSON). A row without a valid answer is refused.
    """
    answers = call.call_function(rows)
    fates: list[Answer | None]
    changed: list[Mapping[str, Any]]
    columns: Mapping[str, Any] = {}
    if isinstance(answers, FrameAnswer):
        fates = [None if each is None else _get_fate(each) for each in answers.verdicts]
        changed, columns = [{} for _ in fates], answers.columns
    else:
        fates = [*map(_get_fate, answers)]
        given = [answer if isinstance(answer, Mapping) else {} for answer in answers]
        changed = [{str(name).lower(): value for name, value in values.items()} for values in given]
    fields = make_arrow_schema(schema)
    names = {field.name.lower(): field.name for field in fields}
    for at, values in enumerate(changed):
        strange = next((name for name in [*columns, *values] if name not in names), None)
        if strange is not None and fates[at] is None:
            fates[at] = _refuse(_make_unknown_column_message(strange, names))
    arrays = []
    for field in fields:
        array, problems = _fit_values(_build_column(field.name, rows, fates, changed, columns), field)
        arrays.append(array)
        for at, problem in problems.items():
            fate = fates[at]
            if fate is None or fate.fate == "keep":
                fates[at] = _refuse(problem)
    outcomes = [fate if fate is not None and fate.fate != "keep" else None for fate in fates]
    state = [
        (fate.fate, as_text(fate.code), as_text(fate.message)) if fate else ("go", None, None) for fate in outcomes
    ]
    columns_of_state = [pa.array([row[at] for row in state], pa.string()) for at in range(len(_STATE))]
    values = pa.StructArray.from_arrays(arrays, fields=list(fields))
    return pa.StructArray.from_arrays([*columns_of_state, values], names=[*_STATE, "values"])


def make_arrow_schema(schema: str) -> pa.Schema:
    from pyspark.sql.types import StructType

    return convert_schema(StructType.fromJson(json.loads(schema)))


def answer_type(schema: str) -> pa.DataType:
    """Return the Arrow type of the result of `judge_answers`."""
    text = [pa.field(name, pa.string()) for name in _STATE]
    return pa.struct([*text, pa.field("values", pa.struct(list(make_arrow_schema(schema))))])


def _get_fate(answer: Any) -> Answer | None:
    """Return the outcome of the row; None if it continues with changes."""
    if getattr(answer, "fate", None) in ("keep", "discard", "nack"):
        return Answer(fate=answer.fate, message=answer.message, code=answer.code)
    if isinstance(answer, Mapping):
        return None
    return _refuse(f"the answer is {show_value(answer)}; expected a dict, keep, discard or nack(why)")


def _refuse(why: str) -> Answer:
    return Answer(fate="nack", message=why, code=ANSWER_CODE)


def _make_unknown_column_message(name: str, names: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"did you mean '{names[near[0]]}'?" if near else "name new columns in the stage's `columns`"
    return f"the answer has '{name}', which is not a column; {meant}"


def _build_column(
    name: str, rows: pa.Table, fates: Sequence[Any], changed: Sequence[Mapping[str, Any]], columns: Mapping[str, Any]
) -> Any:
    """Return the column after the stage: Arrow's if no value must be checked, else a list.

    A row that is not changed keeps its value.
    """
    key = name.lower()
    before = rows[name] if name in rows.column_names else None
    answered = columns.get(key)
    if answered is not None and all(fate is None for fate in fates):
        return answered
    if answered is None and before is not None and not any(key in values for values in changed):
        return before
    old = read_arrow(before) if before is not None else [None] * rows.num_rows
    if answered is None:
        return [values.get(key, old[at]) for at, values in enumerate(changed)]
    new = to_list(answered)
    return [new[at] if fate is None else old[at] for at, fate in enumerate(fates)]


def _fit_values(values: Any, field: pa.Field) -> tuple[pa.Array, Mapping[int, str]]:
    """Return the values with their column's type, and the problem of each value that does not fit; it becomes NULL."""
    wrong = (pa.ArrowException, TypeError, ValueError, ArithmeticError)
    try:
        return _convert_values(values, field.type), {}
    except wrong:
        given = to_list(values)
    problems, fitting = {}, []
    for at, value in enumerate(given):
        for one in (getattr(values, "iloc", values)[at : at + 1], [value]):
            with suppress(*wrong):
                fitting.append(_convert_values(one, field.type))
                break
        else:
            problems[at] = f"{field.name}: {show_value(value)} is not a {field.type}"
            fitting.append(pa.nulls(1, field.type))
    return pa.concat_arrays(fitting), problems


def _convert_values(values: Any, kind: pa.DataType) -> pa.Array:
    """Return the values with this type. Raise an error if a value would change."""
    leaves = _list_leaves(kind)
    has_decimal = any(map(pa.types.is_decimal, leaves))
    if has_decimal and "pyarrow" in repr(getattr(values, "dtype", None)):
        values = pa.array(values, from_pandas=True)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        is_text = _is_text(values.type)
        if pa.types.is_decimal(kind) and is_text:
            texts = values.to_pylist()
            numbers = _mend_decimals([Decimal(text or "1") for text in texts])
            values = pa.array([text if number else "0" for text, number in zip(texts, numbers, strict=True)])
        elif (pa.types.is_string(kind) and not is_text) or (has_decimal and not _has_numbers(values.type, kind)):
            raise TypeError(f"{values.type} is no {kind}")
        return values.cast(kind)
    is_list = isinstance(values, list)
    is_exact = any(not (pa.types.is_floating(leaf) or pa.types.is_binary(leaf) or _is_text(leaf)) for leaf in leaves)
    if has_decimal or (is_exact and (is_list or values.dtype.kind == "O")):
        given = to_list(values)
        mended = _mend_decimals(given)
        if pa.types.is_integer(kind) and not all(map(_is_whole, mended)):
            raise ValueError("not a whole number")
        if has_decimal or mended is not given:
            values = mended
    return pa.array(values, kind, from_pandas=not is_list)


def _mend_decimals(value: Any) -> Any:
    """Return the value with a plain 0 for each decimal that is zero.

    Raise an error if pyarrow would crash at another decimal in the value, or would take it for another number.
    """
    if isinstance(value, Decimal):
        if value and abs(int(value.as_tuple().exponent)) > _MOST_DIGITS:
            raise ValueError("its exponent is too large")
        return value or Decimal(0)
    if isinstance(value, Mapping) and not isinstance(value, pa.Scalar):
        parts = ([*value], [*value.values()])
        mended = _mend_decimals(parts)
        return value if mended is parts else dict(zip(*mended, strict=True))
    is_single = not hasattr(value, "__len__") or getattr(value, "ndim", 1) == 0
    if is_single or isinstance(value, str | bytes | pa.Scalar) or {*map(type, value)} <= {int, float, str, type(None)}:
        return value
    pairs = [(each, _mend_decimals(each)) for each in value]
    if all(after is before for before, after in pairs):
        return value
    return (tuple if isinstance(value, tuple) else list)(after for _, after in pairs)


def _is_whole(value: Any) -> bool:
    """Return whether the value is no number with a fraction. pyarrow judges what is no number."""
    is_other = type(value) is int or isinstance(value, pa.Scalar) or not hasattr(value, "__float__")
    return is_other or bool(value == int(value))


def _list_parts(kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
    """Return the names and types of what a value of this type holds."""
    if pa.types.is_map(kind):
        return [("key", kind.key_type), ("value", kind.item_type)]
    if pa.types.is_struct(kind):
        return [(field.name, field.type) for field in kind]
    return [("", kind.value_type)] if hasattr(kind, "value_type") else []


def _list_leaves(kind: pa.DataType) -> list[pa.DataType]:
    return [leaf for _, part in _list_parts(kind) for leaf in _list_leaves(part)] or [kind]


def _has_numbers(given: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether each decimal of the type `kind` is made from a number."""
    if not _list_parts(kind):
        tests = (pa.types.is_decimal, pa.types.is_integer, pa.types.is_floating, pa.types.is_null)
        return not pa.types.is_decimal(kind) or any(test(given) for test in tests)
    pairs = [(of, to) for name, of in _list_parts(given) for other, to in _list_parts(kind) if name == other]
    return pa.types.is_null(given) or bool(pairs and all(_has_numbers(of, to) for of, to in pairs))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind))
