"""What a test case expects, and the problems of an outcome."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from runners.definitions.document import DefinitionError
from runners.model.errors import Refusal
from runners.operations.cases import (
    Case,
    CaseOutcome,
    CaseResult,
    choose_cases,
    compare,
    find_cases,
    format_results,
    is_equal,
    load_cases,
    match_rows,
    watch_cases,
)

ROWS: Sequence[Mapping[str, Any]] = ({"id": 1, "amount": 1.5}, {"id": 2, "amount": 2.0, "tags": ["a", "b"]})


def make_outcome(rows: Sequence[Mapping[str, Any]] = ROWS, **changes: Any) -> CaseOutcome:
    """Return an outcome with rows for one destination."""
    given: dict[str, Any] = {
        "delivered": {"orders": rows},
        "columns": {"orders": ["id", "amount", "tags"]},
        "filtered": 0,
        "refused": [],
    }
    return CaseOutcome(**{**given, **changes})


def find_problems(outcome: CaseOutcome, **expected: Any) -> list[str]:
    """Return the problems of the outcome."""
    return list(compare(Case(name="a case", rows=[{"id": 1}], **expected), outcome).problems)


REFUSED = {
    "code": "CAST",
    "stage": "cast",
    "message": "column amount: 'x' is not an int",
    "row": {"id": 3, "amount": "x"},
}


@pytest.mark.parametrize(
    "expected",
    [
        {"delivered": 2},
        {"delivered": [{"id": 2}, {"id": 1}]},
        {"delivered": [{"amount": 1.50, "tags": None}, {"tags": ["a", "b"]}]},
        {"delivered": {"orders": 2}},
        {"filtered": 0, "refused": 0},
        {"refused": []},
    ],
)
def test_an_expected_outcome_passes(expected: dict[str, Any]) -> None:
    """The order of rows, other columns and the notation of numbers do not matter."""
    assert find_problems(make_outcome(), **expected) == []


@pytest.mark.parametrize(
    ("expected", "problem"),
    [
        ({"delivered": 3}, "delivered: expected 3, got 2"),
        ({"delivered": [{"id": 1}, {"id": 2}, {"id": 3}]}, "delivered: expected 3, got 2"),
        (
            {"delivered": [{"id": 1}, {"id": 2, "amount": 2.5}]},
            'delivered: expected amount 2.5, got 2.0 in {"id": 2, "amount": 2.0, "tags": ["a", "b"]}',
        ),
        ({"delivered": [{"id": 1}]}, 'delivered: not expected: {"id": 2, "amount": 2.0, "tags": ["a", "b"]}'),
        (
            {"delivered": [{"id": 1, "total": 1}, {"id": 2}]},
            "delivered: there is no column 'total'; there are id, amount, tags",
        ),
        ({"delivered": [{"id": "1"}, {"id": 2}]}, 'delivered: expected id "1", got 1 in {"id": 1, "amount": 1.5}'),
        ({"delivered": {"sales": 2}}, "delivered: there is no destination 'sales'; expected orders"),
        ({"filtered": 1}, "filtered: expected 1, got 0"),
        ({"refused": 1}, "refused: expected 1, got 0"),
        ({"fails": True}, "expected the batch to fail, and it does not"),
    ],
)
def test_an_unexpected_outcome_is_named(expected: dict[str, Any], problem: str) -> None:
    """The problem has the expected and the actual value."""
    assert problem in find_problems(make_outcome(), **expected)


@pytest.mark.parametrize(
    ("expected", "problems"),
    [
        ([{"code": "CAST", "message": "is not an int"}], []),
        ([{"stage": "cast", "row": {"id": 3}}], []),
        (1, []),
        ([{"code": "PARSE"}], ['expected code "PARSE", got "CAST"']),
        ([{"message": "is not a date"}], ['expected message "is not a date"']),
    ],
)
def test_a_refused_row_is_matched_by_part_of_it(expected: Any, problems: list[str]) -> None:
    """A message need only contain the given words."""
    found = find_problems(make_outcome(refused=[REFUSED]), refused=expected)
    assert len(found) == len(problems)
    assert all(part in line for part, line in zip(problems, found, strict=True))


def test_an_unexpected_refused_row_is_a_problem() -> None:
    """A case that only counts delivered rows would hide the reason."""
    found = find_problems(make_outcome(refused=[REFUSED]), delivered=2)
    assert found == ["refused by cast, and not expected: column amount: 'x' is not an int"]


def test_a_failing_batch_is_a_problem_unless_it_is_expected() -> None:
    """The problem has the reason of the failure."""
    outcome = make_outcome(failures=["expect: 80 % of ids were unique"])
    assert find_problems(outcome, delivered=2) == ["the batch fails: expect: 80 % of ids were unique"]
    assert find_problems(outcome, fails=True) == []


def test_a_case_with_several_destinations_names_each() -> None:
    """A number or a list of rows does not name its destination, so it is refused."""
    outcome = make_outcome(delivered={"a": ROWS, "b": []}, columns={"a": ["id"], "b": ["id"]})
    assert find_problems(outcome, delivered={"a": 2, "b": 0}) == []
    assert find_problems(outcome, delivered={"b": 1}) == ["delivered to b: expected 1, got 0"]
    assert "expected a mapping with a, b" in find_problems(outcome, delivered=2)[0]


def test_as_many_expected_rows_as_possible_are_matched() -> None:
    """One expected row fits both rows, and another fits only one. The match does not depend on their order."""
    wanted: list[dict[str, Any]] = [{"kind": "x"}, {"id": 1}]
    found = [{"id": 1, "kind": "x"}, {"id": 2, "kind": "x"}]
    for expected in itertools.permutations(wanted):
        assert match_rows(list(expected), found) == ([], [])
    assert match_rows([{"kind": "x"}, {"kind": "x"}, {"id": 1}], found)[0] != []


@pytest.mark.parametrize(
    ("expected", "found", "equal"),
    [
        (1, 1.0, True),
        (1.10, 1.1, True),
        ("1", 1, False),
        (True, 1, False),
        (None, None, True),
        ("2026-01-31T10:00:00Z", "2026-01-31T10:00:00.000Z", True),
        ("2026-01-31 10:00", "2026-01-31T10:00:00+00:00", True),
        ("2026-01-31", "2026-01-31T00:00:00Z", False),
        ("20260131", "2026-01-31", False),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 2}, {"a": 1}, False),
        ([1, 2], [2, 1], False),
        ([1], [1, 2], False),
    ],
)
def test_values_are_compared_by_their_meaning(expected: Any, found: Any, equal: bool) -> None:
    """Numbers may have other digits, and times another form. But text does not equal a number, or a day a time."""
    assert is_equal(expected, found) is equal


def load_text(folder: Path, text: str) -> Sequence[Case]:
    file = folder / "orders.test.yaml"
    file.write_text(text, encoding="utf-8")
    return load_cases(file)


def test_cases_are_read_from_the_file_beside_the_definition(tmp_path: Path) -> None:
    """A file of rows is looked for beside the definition too."""
    assert find_cases(tmp_path / "orders.yaml") == tmp_path / "orders.test.yaml"
    text = (
        "cases:\n- {name: a, at: 2026-03-04 23:00+02:00, file: bad.json, refused: 1}\n"
        "- {name: b, rows: [{id: 1}], delivered: 1}\n"
    )
    first, second = load_text(tmp_path, text)
    assert (first.file, first.time) == (str(tmp_path / "bad.json"), datetime(2026, 3, 4, 21, tzinfo=timezone.utc))
    assert (second.rows, second.delivered, second.refused) == (({"id": 1},), 1, None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cases: []", "cases: expected at least one case"),
        ("cases:\n- {name: a, rows: [{id: 1}]}", "expected at least one of delivered, filtered, refused and fails"),
        ("cases:\n- {name: a, delivered: 1}", "expected rows or a file, got neither"),
        ("cases:\n- {name: a, rows: [1], delivered: 1}", "expected a mapping for each row, got 1 as row 1"),
        ("cases:\n- {name: a, rows: [{id: 1}], deliverd: 1}", "did you mean 'delivered'?"),
        ("cases:\n- {name: a, rows: [{id: 1}], refused: [{cod: X}]}", "expected some of code, message, row, stage"),
        ("cases:\n- {name: a, rows: [{id: 1}], delivered: [1]}", "expected a mapping for each row"),
        ("cases:\n- {name: a, rows: [{id: 1}], delivered: 1, at: soon}", "expected a time such as 2026-01-31 06:00"),
        ("cases:\n- &a {name: a, rows: [{id: 1}], delivered: 1}\n- *a", "the name 'a' stands twice"),
    ],
)
def test_an_invalid_case_is_refused_with_what_to_write(tmp_path: Path, text: str, problem: str) -> None:
    """Spark is not started for this."""
    with pytest.raises(DefinitionError) as raised:
        load_text(tmp_path, text)
    assert problem in raised.value.message


def test_a_missing_file_of_cases_is_named_with_what_to_write(tmp_path: Path) -> None:
    """The hint names the file to write."""
    with pytest.raises(DefinitionError) as raised:
        load_cases(tmp_path / "orders.test.yaml")
    assert "Write orders.test.yaml beside the definition" in raised.value.hint


def test_a_name_chooses_a_case(tmp_path: Path) -> None:
    """An unknown name is refused. The message has the nearest name, or all names."""
    cases = [Case(name=name, rows=[{"id": 1}], delivered=1) for name in ("one", "two")]
    assert [case.name for case in choose_cases(cases, ["two"])] == ["two"]
    assert choose_cases(cases, []) is cases
    with pytest.raises(Refusal, match="did you mean 'two'"):
        choose_cases(cases, ["tow"])
    with pytest.raises(Refusal, match="There is no case 'last'; there are: 'one', 'two'"):
        choose_cases(cases, ["last"])


def test_results_are_printed_as_lines_and_a_total() -> None:
    """The problems are below their case."""
    results = [CaseResult(case="a", problems=()), CaseResult(case="b", problems=("filtered: expected 1, got 0",))]
    assert format_results(results, Path("x/orders.test.yaml"), 1.234).splitlines() == [
        "passed  a",
        "FAILED  b",
        "        filtered: expected 1, got 0",
        "orders.test.yaml: 1 passed, 1 failed in 1.2 s",
    ]


class Ended(Exception):
    """The watch has ended."""


def watch_steps(
    folder: Path, cases: Path, named: Sequence[Path], *moments: Callable[[], object]
) -> list[Sequence[str]]:
    """Run these steps one after the other, and return the changes that each try reports."""
    waiting = iter(moments)

    def pause(_: float) -> None:
        try:
            next(waiting)()
        except StopIteration:
            raise Ended from None

    seen: list[Sequence[str]] = []
    with pytest.raises(Ended):
        seen.extend(watch_cases(cases, folder, named, pause))
    return seen


def make_writer(file: Path, text: str) -> Callable[[], object]:
    def now() -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    return now


def test_a_watch_sees_changes_but_not_what_a_run_writes(tmp_path: Path) -> None:
    """Changes of a state, a Delta table or compiled Python files do not count."""
    (tmp_path / "orders.yaml").write_text("a")
    seen = watch_steps(
        tmp_path,
        tmp_path / "orders.test.yaml",
        [],
        lambda: None,
        make_writer(tmp_path / "orders" / "_delta_log" / "0.json", "{}"),
        make_writer(tmp_path / ".wherry" / "note.json", "{}"),
        make_writer(tmp_path / "__pycache__" / "tag.py", "{}"),
        make_writer(tmp_path / "tag.py", "b"),
        lambda: None,
        (tmp_path / "tag.py").unlink,
        make_writer(tmp_path / "orders.test.yaml", "cases: []"),
    )
    assert seen == [(), ["tag.py"], ["tag.py"], ["orders.test.yaml"]]


def test_a_file_in_another_folder_is_watched_if_it_is_named(tmp_path: Path) -> None:
    """The command or a case names it, also with a pattern, and it may have any ending. A file that no case names any
    more is not watched.
    """
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    cases = there / "orders.test.yaml"
    make_writer(cases, "cases: [{name: a, file: ../far/*.parquet, filtered: 1}]")()
    seen = watch_steps(
        here,
        cases,
        [there / "secrets.env"],
        make_writer(there / "other.env", "a"),
        make_writer(there / "secrets.env", "a"),
        make_writer(tmp_path / "far" / "a.parquet", "a"),
        make_writer(tmp_path / "far" / "a.parquet", "ab"),
        make_writer(cases, "cases: [{name: a, rows: [{id: 1}], filtered: 1}]"),
        make_writer(tmp_path / "far" / "a.parquet", "abc"),
    )
    assert seen == [(), ["secrets.env"], ["a.parquet"], ["a.parquet"], ["orders.test.yaml"]]


def test_a_change_during_a_try_causes_another_try(tmp_path: Path) -> None:
    """The try may have used the content before the change."""
    tries = watch_cases(tmp_path / "orders.test.yaml", tmp_path, pause=lambda _: pytest.fail("nothing has changed"))
    assert next(tries) == ()
    make_writer(tmp_path / "tag.py", "a")()
    assert next(tries) == ["tag.py"]
    make_writer(tmp_path / "tag.py", "ab")()
    make_writer(tmp_path / "orders.yaml", "a")()
    assert next(tries) == ["orders.yaml", "tag.py"]
