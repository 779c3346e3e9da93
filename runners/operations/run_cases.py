"""Passes the rows of test cases through the stages. Cases share a Spark job if they can."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pyspark.sql import functions as F
from pyspark.sql import types as T

from origins.batch import Batch, Limits, Span
from origins.capabilities import complete_schema
from origins.errors import has_condition, list_spark_errors
from origins.files.files import Files
from origins.lazy import DataFrame, SparkSession
from origins.origin import PLACE, Origin, Progress
from origins.schema import parse_schema
from runners.definitions.definition import Definition
from runners.definitions.document import suggest_nearest
from runners.model.errors import Refusal
from runners.model.masking import without
from runners.operations.cases import Case, CaseOutcome, CaseResult, compare
from runners.operations.pipeline_access import open_session
from runners.operations.trace import Example, Examples, PassRows, ask, begin_rows
from runners.running.opening import find_schema, make_chain
from runners.spark.own_session import put_settings_back


@put_settings_back()
def run_cases(definition: Definition, cases: Sequence[Case]) -> Sequence[CaseResult]:
    """Return the result of each case, in order. Writes nothing, and reads no table except those of lookups."""
    spark = open_session(definition.pipeline)
    runner = CaseRunner(definition, spark)
    outcomes = {case.name: outcome for group in runner.group(cases) for case, outcome in runner.run(group)}
    return [compare(case, outcomes[case.name]) for case in cases]


class CaseRunner:
    """Runs cases on the stages of a definition."""

    def __init__(self, definition: Definition, spark: SparkSession) -> None:
        self._pipeline, self._spark = definition.pipeline, spark
        self._origins = definition.pipeline.origins_by_name
        self._schemas: dict[str, str] = {}

    def group(self, cases: Sequence[Case]) -> Iterator[Sequence[Case]]:
        """Group the cases that one query can answer: same origin, same time, and no stage that compares rows."""
        groups: dict[object, list[Case]] = {}
        for case in cases:
            alone = bool(case.file) or self._compares_rows(self._find_origin(case))
            groups.setdefault(case.name if alone else (case.origin, case.time), []).append(case)
        return iter(groups.values())

    def _compares_rows(self, origin: Origin) -> bool:
        """Whether the outcome of a row may depend on other rows."""
        stages = [each.stage for each in make_chain(self._pipeline, origin).steps]
        return any(each.may_mix or each.needs_places or each.prepares for each in stages)

    def run(self, cases: Sequence[Case]) -> Sequence[tuple[Case, CaseOutcome]]:
        """Return the outcome of the rows of each case."""
        origin = self._find_origin(cases[0])
        chain = make_chain(self._pipeline, origin)
        batch, frame, parts = (self._read_file if cases[0].file else self._make_rows)(cases, origin)
        pins = chain.pins(self._spark)

        def view(pass_rows: PassRows) -> Examples:
            try:
                return pass_rows(begin_rows(frame, batch, parts), chain, pins).collect(_ALL)
            except list_spark_errors() as error:
                if has_condition(error, "MALFORMED_RECORD_IN_PARSING"):
                    raise _refuse_rows(cases, batch) from error
                raise

        found, together = ask(view), len(cases) == 1
        return [
            (case, self._make_outcome(found, [row for row in found.rows if together or row.part == number]))
            for number, case in enumerate(cases, 1)
        ]

    def _make_outcome(self, found: Examples, rows: Sequence[Example]) -> CaseOutcome:
        trace = found.trace
        delivered = {name: [found.find_delivered(row, name) for row in rows] for name in trace.chain.branches}
        refused = [(row, trace.name_step(row.state)) for row in rows if row.state < 0]
        failures = [(name, line) for name, _, why in trace.list_failures() for line in why]
        return CaseOutcome(
            delivered={name: [json.loads(text) for text in texts if text] for name, texts in delivered.items()},
            columns={name: trace.sections[-1].get_schema(name).names for name in delivered},
            filtered=sum(1 for row in rows if row.state > 0),
            refused=[
                {"code": row.code, "stage": stage, "message": row.message, "row": json.loads(row.row or "")}
                for row, stage in refused
            ],
            failures=[f"{name}: {without(self._pipeline.secrets, line)}" for name, line in failures],
        )

    def _find_origin(self, case: Case) -> Origin:
        if not case.origin and len(self._origins) > 1:
            raise Refusal(
                f"Case {case.name!r} names no origin, and there are several.",
                hint=f"Add  origin: NAME  to the case, with one of {', '.join(self._origins)}.",
            )
        name = case.origin or next(iter(self._origins))
        if name not in self._origins:
            raise Refusal(f"Case {case.name!r}: there is no origin {name!r}; {suggest_nearest(name, self._origins)}")
        return self._origins[name]

    def _find_schema(self, origin: Origin) -> str:
        """Return the schema of the origin's rows, which is declared or inferred from waiting rows."""
        name = origin.name or "origin"
        if name not in self._schemas:
            given = getattr(origin, "schema", None)
            if given is not None:
                schema = str(parse_schema(self._spark, given, name).json())
            else:
                schema = find_schema(origin, None, self._spark, origin.survey(self._spark, Progress())) or ""
            if not schema:
                raise Refusal(
                    f"The columns of {name} are not known: it declares no schema, and no row waits.",
                    hint='Declare them in the definition:  schema: "id long, name string"',
                )
            self._schemas[name] = complete_schema(origin, schema)
        return self._schemas[name]

    def _make_rows(self, cases: Sequence[Case], origin: Origin) -> tuple[Batch, DataFrame, Sequence[str]]:
        """Return the rows of these cases. Each case is a part of the batch."""
        schema = self._find_schema(origin)
        columns = T.StructType.fromJson(json.loads(schema))
        for case in cases:
            for row in case.rows:
                unknown = [name for name in row if name not in columns.names]
                if unknown:
                    raise Refusal(
                        f"Case {case.name!r} has a row with {unknown[0]!r}, and the origin has no such column; "
                        f"{suggest_nearest(unknown[0], columns.names)}"
                    )
        texts = [
            {"part": str(number), "row": at, "text": json.dumps(row, ensure_ascii=False, default=str)}
            for number, case in enumerate(cases, 1)
            for at, row in enumerate(case.rows)
        ]
        strict = {"mode": "FAILFAST"}
        one = self._spark.range(1)
        every = F.from_json(F.lit(json.dumps(texts)), "array<struct<part: string, row: bigint, text: string>>", strict)
        typed = F.from_json("text", columns, strict).alias("it")
        frame = one.select(F.inline(every)).select("*", typed)
        place = F.struct(F.col("part"), F.lit(0).cast("long").alias("block"), F.col("row")).alias(PLACE)
        frame = frame.select(*[F.col("it")[name].alias(name) for name in columns.names], place)
        return self._make_batch(cases[0], origin, schema), frame, [str(number) for number in range(1, len(cases) + 1)]

    def _read_file(self, cases: Sequence[Case], origin: Origin) -> tuple[Batch, DataFrame, Sequence[str]]:
        """Return the rows of the one file, as the origin reads it."""
        (case,) = cases
        if not isinstance(origin, Files):
            raise Refusal(
                f"Case {case.name!r} names a file, and its origin does not read files.", hint="Write `rows:` instead."
            )
        reader = replace(origin, path=str(case.file))
        backlog = reader.survey(self._spark, Progress())
        schema = find_schema(reader, None, self._spark, backlog)
        spans = [backlog.take(own, None, Limits()) for own in self._pipeline.lanes_of(reader).values()]
        span = next((each for each in spans if each is not None), None)
        if schema is None or span is None:
            raise Refusal(f"Case {case.name!r}: the file {case.file} has nothing to read.")
        batch = self._make_batch(case, reader, complete_schema(reader, schema), span)
        return batch, reader.fetch(self._spark, [batch], places=True).frame(), reader.parts(batch)

    def _make_batch(self, case: Case, origin: Origin, schema: str, span: Span | None = None) -> Batch:
        return Batch(
            pipeline=self._pipeline.name,
            run="test",
            origin=origin.name or "origin",
            lane=next(iter(self._pipeline.lanes_of(origin).values())),
            number=1,
            plan="test",
            span=span or Span(start=None, end=None),
            schema=schema,
            time=case.time,
        )


def _refuse_rows(cases: Sequence[Case], batch: Batch) -> Refusal:
    """Return the error for rows whose values do not have the columns' types."""
    names, columns = ", ".join(repr(case.name) for case in cases), T.StructType.fromJson(json.loads(batch.schema))
    types = ", ".join(f"{each.name} {each.dataType.simpleString()}" for each in columns)
    return Refusal(
        f"A row does not fit the columns of its origin, in one of these cases: {names}.",
        hint=f"The columns are: {types}",
    )


_ALL = 1_000_000_000
"""The number of example rows of each kind, so that all rows are seen."""
