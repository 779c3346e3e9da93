"""`python`: a Python function answers for each row."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from origins.functions import by_value, check_function, function_of, short_name
from origins.names import HIDDEN
from origins.quantities import seconds
from stages.expressions import check_row_expressions
from stages.signature import columns_of, takes_of
from stages.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

    from stages.rows import Rows

_ANSWER = HIDDEN + "answer"
_SENT = ("answer", "halving", "frames", "calling", "judging", "child", "answering")
"""What Spark's workers get from here with the function; they need not have Wherry."""


@dataclass(frozen=True, kw_only=True)
class Handler(Stage):
    """Gives rows to a Python function, which answers for each: keep it, change it, discard it, or refuse it."""

    asks_outside: ClassVar[bool] = True

    function: str | Callable[..., Any] = field(kw_only=False, metadata={"path": True, "like": "enrich:score"})
    """`module:function`: of a file beside the definition, or of a module that is installed."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """From the names of columns that it adds, or to which it gives another type, to their types; by default what its
    type hints say."""
    rows: int = 1_000
    """At most so many rows are given to it at a time."""
    timeout: str = field(default="5m", metadata={"like": "30s"})
    """How long one call may take; of an async function, one row."""
    concurrency: int = 8
    """So many rows an async function may be at work on at a time, in each of Spark's tasks."""

    def __post_init__(self) -> None:
        check_function("function", self.function)
        if self.columns:
            check_row_expressions("columns", self.columns)
        for name in ("rows", "concurrency"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: expected at least 1, got {value!r}")
        try:
            long = seconds(self.timeout)
        except ValueError as error:
            raise ValueError(f"timeout: {error}") from error
        if not long:
            raise ValueError(f"timeout: expected a time in which a call can end, got {self.timeout!r}")

    @property
    def repeatable(self) -> bool:
        """Who knows."""
        return False

    def apply(self, rows: Rows) -> Rows:
        from pyspark.sql import functions as F

        leaving = self._leaving(rows)
        answer = F.col(_ANSWER)
        tried = {_ANSWER: self._asked(rows, leaving)}
        refused = answer["fate"] == "nack"
        why = F.when(refused, F.struct(answer["code"].alias("code"), answer["message"].alias("message")))
        judged = rows.attempt(tried, why, {_ANSWER: _ANSWER}).filter(answer["fate"] == "go")
        return judged.select({name: answer["values"][name] for name in leaving.names})

    def _asked(self, rows: Rows, leaving: StructType) -> Column:
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.functions import arrow_udf
        from pyspark.sql.types import StringType, StructField, StructType

        from stages.answering import Answering, answers_with
        from stages.calling import Call

        function, name = function_of(self.function), short_name(self.function)
        send()
        by_value(function)
        takes = takes_of(function, name)
        call = Call(
            function=function, name=name, takes=takes, concurrency=self.concurrency, seconds=seconds(self.timeout)
        )
        answering = Answering(call=call, schema=leaving.json(), rows=self.rows)
        said = [StructField(each, StringType()) for each in ("fate", "code", "message")]
        kind = StructType([*said, StructField("values", leaving)])
        asked = arrow_udf(answers_with(answering), returnType=kind)  # type: ignore[call-overload]
        whole = F.struct(*[rows.column(each).alias(each) for each in rows.names])
        called: Column = asked.asNondeterministic()(rows.live, whole)
        return called

    def _leaving(self, rows: Rows) -> StructType:
        """The columns that leave: those that come, and those that are said to be new or of another type."""
        from pyspark.sql.types import DataType, StructField, StructType

        name = short_name(self.function)
        said = self.columns or columns_of(function_of(self.function), name)
        given = {rows.spelled(column): DataType.fromDDL(kind) for column, kind in said.items()}
        came = {each.name: each.dataType for each in rows.schema}
        return StructType([StructField(each, kind) for each, kind in {**came, **given}.items()])


def send() -> None:
    """See to it that what is sent with the function goes there by value."""
    from pyspark import cloudpickle

    for name in _SENT:
        cloudpickle.register_pickle_by_value(sys.modules[f"stages.{name}"])  # type: ignore[no-untyped-call]
