"""The rows of a batch, answered by a Python function in a process of its own; runs in Spark's Python workers.

Like `calling.py` it is sent there by value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stages.answer import ANSWER_CODE, LOST_CODE, as_text
from stages.calling import Call, ConnectionErrorInFunction, FunctionCannotRun
from stages.child import Child, Lost
from stages.halving import Raised, halved
from stages.judging import answer_type, judged

if TYPE_CHECKING:
    import pyarrow as pa

MOST_LOST = 50
"""So many rows of one task may end or stall their process; with more it is the function, and the batch fails."""


@dataclass(frozen=True, kw_only=True)
class Answering:
    """Answers rows, so many at a time."""

    call: Call
    schema: str
    """The columns that leave, as Spark's JSON."""
    rows: int
    """At most so many rows are given to the function at a time."""

    def answers(self, batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        """For each batch, which is whether a row is live and the rows themselves: what is said of each row (`judged`),
        NULL for one that is not live."""
        child = Child(self._serve)
        try:
            for live, rows in batches:
                wanted = rows.filter(live)
                parts = [wanted.slice(first, self.rows) for first in range(0, len(wanted), self.rows)]
                pieces = [piece for part in parts for piece in self._pieces(child, part)]
                yield self._whole(live, pieces)
        finally:
            child.end()

    def _pieces(self, child: Child, rows: pa.Array) -> Iterator[pa.Array]:
        lost = 0
        for _, _, piece in halved(len(rows), lambda first, end: self._asked(child, rows.slice(first, end - first))):
            if isinstance(piece, Raised):
                lost += piece.code == LOST_CODE
                if lost > MOST_LOST:
                    raise FunctionCannotRun(f"more than {MOST_LOST} of {len(rows)} rows end like this: {piece.said}")
                piece = self._refused(piece)
            yield piece

    def _asked(self, child: Child, rows: pa.Array) -> pa.Array:
        call = self.call
        turns = -(-len(rows) // call.concurrency) if call.takes == "row" else 1
        try:
            told = child.ask(_packed(rows), call.seconds * turns + (call.takes == "row"))
        except Lost as lost:
            raise Raised(f"{call.name} {lost}", LOST_CODE) from lost
        if told[:1] == b"A":
            return _unpacked(told[1:])
        said = json.loads(told[1:])
        if told[:1] == b"R":
            raise Raised(*said)
        raise (ConnectionErrorInFunction if told[:1] == b"C" else FunctionCannotRun)(*said)

    def _serve(self, question: bytes) -> bytes:
        """What the child answers: rows, or what was raised."""
        import pyarrow as pa

        try:
            rows = pa.Table.from_batches([pa.RecordBatch.from_struct_array(_unpacked(question))])
            return b"A" + _packed(judged(self.call, rows, self.schema))
        except Raised as error:
            return b"R" + json.dumps([error.said, error.code]).encode()
        except ConnectionErrorInFunction as error:
            return b"C" + json.dumps([str(error)]).encode()
        except FunctionCannotRun as error:
            return b"F" + json.dumps([str(error)]).encode()
        except Exception as error:  # an answer may do anything while it is looked at
            said = f"{self.call.name} gave an answer that cannot be read: {type(error).__name__}: {as_text(error)}"
            return b"R" + json.dumps([said, ANSWER_CODE]).encode()

    def _refused(self, error: Raised) -> pa.Array:
        import pyarrow as pa

        said = {"fate": "nack", "code": error.code, "message": as_text(error.said), "values": None}
        return pa.array([said], answer_type(self.schema))

    def _whole(self, live: pa.Array, pieces: Sequence[pa.Array]) -> pa.Array:
        """The answers at the places of their rows."""
        import pyarrow as pa

        answers = pa.chunked_array(pieces, answer_type(self.schema)).combine_chunks()
        place = iter(range(len(answers)))
        return answers.take(pa.array([next(place) if each else None for each in live.to_pylist()], pa.int64()))


def answers_with(answering: Answering) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """As a function, whose hints tell Spark how to call it."""
    import pyarrow as pa

    def answers(batches: Iterator[Any]) -> Iterator[Any]:
        return answering.answers(batches)

    answers.__annotations__ = {"batches": Iterator[tuple[pa.Array, pa.Array]], "return": Iterator[pa.Array]}
    return answers


def _packed(rows: pa.Array) -> bytes:
    import pyarrow as pa

    batch = pa.RecordBatch.from_struct_array(rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def _unpacked(content: bytes) -> pa.Array:
    import pyarrow as pa

    return pa.ipc.open_stream(content).read_next_batch().to_struct_array()
