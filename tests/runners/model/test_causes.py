"""Causes of refusals, grouped by the form of the value. These tests need no Spark."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.model.causes import (
    KEYED,
    MOST_FILES,
    CauseCounter,
    Causes,
    find_form,
    make_pattern,
    name_part,
    parse_message,
)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ("", ""),
        (" ", " "),
        ("7", "9"),
        ("12345", "9"),
        ("-3", "-9"),
        ("26,58", "9,9"),
        ("7,10", "9,9"),
        ("1.5", "9.9"),
        ("1,234.50", "9,9.9"),
        ("1.234,50", "9.9,9"),
        ("1e-3", "9a-9"),
        ("12 345", "9 9"),
        ("12   345", "9 9"),
        (" 5", " 9"),
        ("€5", "€9"),
        ("5 EUR", "9 a"),
        ("50%", "9%"),
        ("n/a", "a/a"),
        ("N/A", "a/a"),
        ("none", "a"),
        ("Größe", "a"),
        ("Größe 5", "a 9"),
        ("---", "-"),
        ("2026-01-31", "9-9-9"),
        ("31.01.2026", "9.9.9"),
        ("31/1/26", "9/9/9"),
        ("06:00", "9:9"),
        ("anna@x.com", "a@a.a"),
        ("A12", "a9"),
        ("3rd", "9a"),
        ("550e8400", "x"),
        ("a1b2c3", "x"),
        ("[1,2,3,4]", "[9,9,9]"),
        ("[1,2,3,4,5,6]", "[9,9,9]"),
        ("a b c d e f g", "a a a"),
        ("?!" * 100, "?!?!"),
    ],
)
def test_values_of_one_form_are_alike(value: str, form: str) -> None:
    """The length of numbers and words does not matter."""
    assert find_form(value) == form


@given(st.text())
def test_a_form_has_a_bounded_length_and_does_not_depend_on_the_length_of_runs(value: str) -> None:
    """Spark may therefore shorten runs of digits and letters first."""
    import re

    form = find_form(value)
    assert len(form) <= 61
    shortened = re.sub("[0-9]+", "9", re.sub(r"[^\W\d_]+", "a", value))
    assert find_form(shortened) == form


@pytest.mark.parametrize(
    ("message", "columns", "form", "problem"),
    [
        ("column fare: '26,58' is not a decimal(10,2)", ("fare",), "9,9", "fare is not a decimal(10,2)"),
        ("column fare: NULL is not an int", ("fare",), "NULL", "fare is not an int"),
        ("column fare: 2*** is not an int", ("fare",), "***", "fare is not an int"),
        ("column a: 'it's 5; no' is not an int", ("a",), "a'a 9; a", "a is not an int"),
        ("column a: 'x' is not an int; column b2: '1' is not a date", ("a", "b2"), "a, 9", None),
        ("expect_in_set: column a: 'x', expected a, b", ("a",), "a", "expect_in_set: a, expected a, b"),
        ("zones has no row with k = 17, b = x y", ("k", "b"), "9, a a", "zones has no row with k, b"),
        ("positive: amount > 0 is false", (), "", "positive: amount > 9 is false"),
        ("order 1234 is closed", (), "", "order 9 is closed"),
    ],
)
def test_a_message_is_split_into_its_parts(
    message: str, columns: tuple[str, ...], form: str, problem: str | None
) -> None:
    """The parts are columns, values and the problem, as stages and origins write them."""
    parsed = parse_message(message)
    assert parsed.columns == columns
    assert parsed.form == form
    assert problem in (None, parsed.problem)


PIECES = st.sampled_from(
    ["column ", "a", "b2", ": ", "'", "NULL", "7", "2***", " is not ", "; ", ", ", " = ", KEYED, "id", "\n", "x y", "é"]
)
MESSAGES = st.lists(PIECES, max_size=12).map("".join)


@given(MESSAGES, st.lists(MESSAGES | st.from_regex("[0-9a-z, ]+", fullmatch=True), max_size=3))
def test_a_pattern_finds_only_messages_of_the_same_problem(message: str, values: list[str]) -> None:
    """It finds the message that it is made of. Other values in the places of its groups change nothing else."""
    pattern = make_pattern(message)
    found = re.search(pattern.removesuffix("$") + r"\Z", message)
    assert found is not None
    at = [found.span(number) for number in range(2, len(found.groups()) + 1)]
    other = message
    for (begin, end), value in reversed([*zip(at, values, strict=False)]):
        other = other[:begin] + value + other[end:]
    again = re.search(pattern.removesuffix("$") + r"\Z", other)
    if again is not None and (KEYED in other) == (KEYED in message):
        parsed, expected = parse_message(other), parse_message(message)
        assert (parsed.columns, parsed.problem) == (expected.columns, expected.problem)
        alike = [find_form(value) for value in again.groups()] == [find_form(value) for value in found.groups()]
        assert not alike or parsed.form == expected.form


def make_refusal(value: str, **more: str) -> dict[str, str]:
    """Return a refusal of `cast`."""
    return {"code": "CAST", "stage": "types", "message": f"column fare: '{value}' is not a decimal(10,2)", **more}


def test_causes_are_described_in_words() -> None:
    """The forms of one problem share a line, the most frequent first. Each form has its files."""
    counter = CauseCounter()
    for number in range(5):
        counter.add(make_refusal("n/a"), rows=80, files=[f"file:///landing/{number}.csv"])
    counter.add(make_refusal("26,58"), rows=40_000, files=["file:///landing/yellow_2026-03.csv"])
    counter.add(make_refusal("7,10"), rows=33, files=["file:///landing/yellow_2026-03.csv"])
    counter.add({"code": "pos", "stage": "rules", "message": "pos: a > 0 is false"}, files=[None, ""])
    causes = counter.count()
    line = "fare is not a decimal(10,2): 40,033 rows like '26,58' in yellow_2026-03.csv; 400 like 'n/a' in 5 files"
    assert causes.describe() == [f"CAST, types: {line}", "pos, rules: pos: a > 0 is false: 1 row"]
    assert causes.describe(placed=False)[0] == line
    assert causes.json()[1] == {
        "code": "CAST",
        "stage": "types",
        "destination": None,
        "column": "fare",
        "problem": "fare is not a decimal(10,2)",
        "form": "a/a",
        "rows": 400,
        "files": 5,
        "first_files": [f"file:///landing/{number}.csv" for number in range(3)],
        "example": "'n/a'",
    }


def test_partitions_of_a_topic_are_not_called_files() -> None:
    """The offset before a message is omitted, because each row has a different one."""
    counter = CauseCounter()
    for number in range(5):
        message = f"orders/{number % 2} offset {number}: this value is not one JSON object"
        counter.add({"code": "PARSE", "stage": "origin", "message": message}, files=[f"orders/{number % 2}"])
    counter.add(make_refusal("n/a"), files=["orders/0"])
    assert counter.count().describe(placed=False) == [
        "this value is not one JSON object: 5 rows in 2 partitions",
        "fare is not a decimal(10,2): 1 row like 'n/a' in orders/0",
    ]


@pytest.mark.parametrize(
    "source", ["version 7", "versions 3 to 5", "changes of version 7", "the table as of version 7"]
)
def test_versions_of_a_table_are_not_called_files(source: str) -> None:
    """Several of them are several batches, because a batch may have more than one version."""
    counter = CauseCounter()
    counter.add(make_refusal("n/a"), files=[source])
    counter.add({"code": "pos", "stage": "rules", "message": "pos: a > 0 is false"}, files=[source])
    counter.add({"code": "pos", "stage": "rules", "message": "pos: a > 0 is false"}, files=["version 9"])
    assert counter.count().describe(placed=False) == [
        "pos: a > 0 is false: 2 rows in 2 batches",
        f"fare is not a decimal(10,2): 1 row like 'n/a' in {source}",
    ]
    assert name_part(source) == name_part(source, whole=True) == source


def test_a_file_and_a_partition_are_named_by_what_they_are() -> None:
    """A file has its whole path only where a person asks about one row."""
    assert name_part("landing/orders.json") == "file orders.json"
    assert name_part("landing/orders.json", whole=True) == "file landing/orders.json"
    assert name_part("orders/0") == "partition orders/0"


def test_a_file_before_a_message_does_not_separate_causes() -> None:
    """The origin writes it there. The file is named once, where the files are counted."""
    counter = CauseCounter()
    parse = {"code": "PARSE", "stage": "origin"}
    for number in (1, 2):
        file = f"new/events-{number}.json"
        counter.add({**parse, "message": f"{file}: this line is not one JSON object"}, files=[file], sample=file)
        counter.add({**parse, "message": f"{file}: column amount: 'abc' is not a double"}, rows=2, files=[file])
    counter.add({**parse, "message": "a.csv: this line has 3 fields, and 6 were expected"}, files=["b.csv", "a.csv"])
    counter.add({**parse, "message": "c.csv: this line has 4 fields, and 6 were expected"}, files=["c.csv"])
    lines = [
        "amount is not a double: 4 rows like 'abc' in 2 files",
        "this line has 3 fields, and 6 were expected: 2 rows in 3 files",
        "this line is not one JSON object: 2 rows in 2 files",
    ]
    assert sorted(counter.count().describe(placed=False)) == lines
    counter.put_messages({"new/events-1.json": "new/events-1.json: this line is not one JSON object"})
    assert lines[2] in counter.count().describe(placed=False)


def test_a_cause_shows_how_many_of_its_rows_wait() -> None:
    """It is omitted if all rows wait. A cause with waiting rows comes before a cause with decided rows only."""
    counter = CauseCounter()
    counter.add(make_refusal("26,58"), rows=9, waiting=0)
    counter.add(make_refusal("n/a"), rows=3, waiting=1)
    counter.add({"code": "pos", "stage": "rules", "message": "pos: a > 0 is false"}, rows=2, waiting=2)
    assert counter.count().describe(placed=False) == [
        "pos: a > 0 is false: 2 rows",
        "fare is not a decimal(10,2): 3 rows like 'n/a' (1 waits); 9 like '26,58' (none wait)",
    ]
    printed = counter.count().json()
    assert [each["waiting"] for each in printed] == [0, 1, 2]
    assert Causes.of(printed) == counter.count()


def test_memory_is_bounded_and_no_row_is_lost() -> None:
    """Causes beyond the limit are counted together, and so are causes that are not shown."""
    counter = CauseCounter(most=10)
    for number in range(50):
        counter.add({"code": f"C{number}", "stage": "s", "message": "no"}, rows=2)
    counter.add({"code": "C1", "stage": "s", "message": "no"}, files=map(str, range(MOST_FILES + 5)))
    causes = counter.count()
    assert (len(causes.found), causes.others) == (10, 80)
    assert causes.describe()[0] == "C1, s: no: 3 rows in 1,000 or more files"
    assert causes.describe()[5:] == ["other causes: 90 rows"]
    assert causes.keep_first(1).others == 98
    assert Causes.of(causes.json()) == causes
    assert counter.count(of=200).others == 179


def test_an_example_is_cut_and_has_no_control_characters() -> None:
    """A value cannot imitate a line of output."""
    counter = CauseCounter()
    counter.add(make_refusal("\x1b[31m" + "y" * 80))
    (line,) = counter.count().describe()
    assert "\x1b" not in line
    assert len(line) < 130
