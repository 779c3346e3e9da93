"""Calls to Great Expectations: the column that is true for an unexpected row, and the verdict on a batch.

It is imported at first use, since that takes seconds. Its data contexts are not used, so it writes no folder and sends
no statistics of use.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from origins.batch import JSON
from origins.lazy import Column, DataFrame, F, LazyModule
from stages.expect.expectation import Expectation

calculators: Any = LazyModule("great_expectations.validator.metrics_calculator")
engines: Any = LazyModule("great_expectations.execution_engine")
metrics: Any = LazyModule("great_expectations.validator.metric_configuration")
pydantic: Any = LazyModule("pydantic.v1")
registry: Any = LazyModule("great_expectations.expectations.registry")
validators: Any = LazyModule("great_expectations.validator.validator")

_LOADING = threading.Lock()
NOTHING: Mapping[str, Any] = {
    "column.mean": None,
    "column.standard_deviation": None,
    "column.outlier_statistics": (None, None, None),
}
"""The figures of a batch that was not read."""


def load() -> Any:
    """Return the core expectations of Great Expectations, imported at the first call.

    Raise ValueError if it is not installed.
    """
    try:
        with _LOADING, silence_logs():
            from great_expectations.expectations import core
    except ImportError as error:
        raise ValueError('Great Expectations is not installed; run  pip install "wherry[expect]"') from error
    return core


def make_row_condition(expected: Expectation, frame: DataFrame) -> Column | None:
    """Return the condition for the rows of the frame that it is about; None if it is about all."""
    condition = getattr(make_expectation(expected), "row_condition", None)
    if condition is None:
        return None
    through = getattr(condition, "pass_through_filter", None)
    if through is not None:
        return F.expr(through)
    column: Column = make_engine(frame).condition_to_filter_clause(condition)
    return column


def make_unexpected_column(
    expected: Expectation, frame: DataFrame, names: Mapping[str, str], figures: Mapping[str, Any] | None = None
) -> Column:
    """Return the column that is true for an unexpected row: Great Expectations' metric.

    `frame` has the columns under the names that `names` gives them. None of its rows is read. `figures` is the result
    of `compute_figures`, by the names of metrics.
    """
    theirs = make_expectation(expected, names, apart=("row_condition", "condition_parser"))
    name = f"{theirs.map_metric}.condition"
    kwargs = registry.get_metric_kwargs(name, configuration=theirs.configuration, runtime_configuration={})
    asked = metrics.MetricConfiguration(name, kwargs["metric_domain_kwargs"], kwargs["metric_value_kwargs"])
    with silence_logs():
        column: Column = _resolve_metric(asked, make_engine(frame), {"table.row_count": 0, **(figures or {})})[0]
    return column


def compute_figures(expected: Expectation, frame: DataFrame, names: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the figures of the whole batch that an expectation needs to judge a row, by the names of metrics.

    It starts a Spark job.
    """
    domain = {"column": names[expected.columns[0]]}
    outliers = expected.type == "expect_column_values_to_not_be_outliers"
    asked = (
        [
            metrics.MetricConfiguration(
                "column.outlier_statistics", domain, {"method": expected.options.get("method", "iqr")}
            )
        ]
        if outliers
        else [metrics.MetricConfiguration(name, domain, None) for name in ("column.mean", "column.standard_deviation")]
    )
    with silence_logs():
        calculator = calculators.MetricsCalculator(execution_engine=make_engine(frame), show_progress_bars=False)
        return dict(calculator.get_metrics({each.metric_name: each for each in asked}))


def validate_batch(
    expectations: Sequence[Expectation], frame: DataFrame, names: Mapping[str, str]
) -> list[dict[str, JSON]]:
    """Return Great Expectations' result for each expectation about the frame: `success`, `result`, `exception`.

    Expectations that can share a Spark job do so.
    """
    if not expectations:
        return []
    theirs = [make_expectation(each, names) for each in expectations]
    for number, each in enumerate(theirs):
        each.meta = {**(each.meta or {}), _NUMBER: number}
    with silence_logs():
        results = make_validator(frame).graph_validate(
            configurations=[each.configuration for each in theirs],
            runtime_configuration={"result_format": "BASIC", "catch_exceptions": True},
        )
    found: dict[int, dict[str, JSON]] = {}
    for result in results:
        validation = result.to_json_dict()
        found[result.expectation_config.meta[_NUMBER]] = {
            "success": bool(validation["success"]),
            "result": _limit_result(validation["result"]),
            "exception": _describe_exception(validation["exception_info"]),
        }
    return [found[number] for number in range(len(theirs))]


_NUMBER = "number"
_MOST_VALUES = 20


def _limit_result(result: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the result without rows, and with at most `_MOST_VALUES` values."""
    kept = {name: value for name, value in result.items() if name not in ("details", "unexpected_rows")}
    return {name: value[:_MOST_VALUES] if isinstance(value, list) else value for name, value in kept.items()}


def _describe_exception(info: Mapping[str, JSON]) -> str | None:
    """Return the error that was raised, in one line; None if none was."""
    infos = [info] if "raised_exception" in info else list(info.values())
    for each in infos:
        if isinstance(each, Mapping) and each["raised_exception"]:
            lines = str(each["exception_message"]).strip() or str(each["exception_traceback"]).strip()
            return lines.splitlines()[0 if each["exception_message"] else -1]
    return None


def _resolve_metric(asked: Any, engine: Any, known: Mapping[str, Any]) -> Any:
    """Return the value of a metric, computed from the metrics that it depends on.

    Only its provider may start Spark jobs.
    """
    provider, function = registry.get_metric_provider(asked.metric_name, engine)
    rests_on = provider.get_evaluation_dependencies(metric=asked, configuration=None, execution_engine=engine)
    inputs = {
        name: known[name] if name in known else _resolve_metric(each, engine, known) for name, each in rests_on.items()
    }
    return function(
        cls=provider,
        execution_engine=engine,
        metric_domain_kwargs=asked.metric_domain_kwargs,
        metric_value_kwargs=asked.metric_value_kwargs,
        metrics=inputs,
        runtime_configuration={},
    )


def make_expectation(expected: Expectation, names: Mapping[str, str] | None = None, apart: Sequence[str] = ()) -> Any:
    """Return Great Expectations' object for the expectation, with columns renamed by `names`."""
    core, names = load(), names or {}
    options = {name: value for name, value in expected.options.items() if name not in apart}
    for key in ("column", "column_A", "column_B"):
        if key in options:
            options[key] = names.get(options[key], options[key])
    for key in ("column_list", "column_set"):
        if isinstance(options.get(key), list | tuple):
            options[key] = [names.get(name, name) for name in options[key]]
    names_of_classes = (name for name in dir(core) if name.startswith("Expect") or name == "UnexpectedRowsExpectation")
    by_name = {each.__module__.rpartition(".")[2]: each for each in map(core.__dict__.get, names_of_classes) if each}
    try:
        with silence_logs():
            return by_name[expected.type](**options, severity=expected.severity, meta=expected.meta)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{expected.type}: {where}: {first['msg']}") from error


def make_validator(frame: DataFrame) -> Any:
    """Return a validator for a frame, without a progress bar."""
    found = validators.Validator(execution_engine=make_engine(frame))
    found._metrics_calculator.show_progress_bars = False  # noqa: SLF001 -- it has no other switch
    return found


def make_engine(frame: DataFrame) -> Any:
    engine = engines.SparkDFExecutionEngine(persist=False, spark=frame.sparkSession)
    engine.load_batch_data("batch", frame)
    return engine


@contextmanager
def silence_logs() -> Iterator[None]:
    """Suppress the library's messages to its developers within the context."""
    logger = logging.getLogger("great_expectations")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
