"""Expressions in a definition."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from stages.expressions import (
    check_condition,
    check_names,
    check_row_expression,
    check_row_expressions,
    enclose,
    is_repeatable_sql,
    list_columns,
    list_tables,
    put_for,
    put_in,
)

LABELS: dict[str, str | int | datetime] = {
    "origin": "it's",
    "lane": "a\\b",
    "number": 3,
    "run": "r",
    "batch_time": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=2))),
}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (":origin", "'it\\'s'"),
        (":lane", "'a\\\\b'"),
        (":number+1", "3L+1"),
        (":batch_time", "timestamp'2026-01-02 01:04:05.000006+00:00'"),
        ("a=:number and b<>:number", "a=3L and b<>3L"),
        ("case when :number > a then :number else :number end", "case when 3L > a then 3L else 3L end"),
        ("a BETWEEN :number AND :number", "a BETWEEN 3L AND 3L"),
        ("f(:number, :number)", "f(3L, 3L)"),
        (":number::string", "3L::string"),
        ("r'\\' || :number", "r'\\' || 3L"),
        ("'it''s' || :number", "'it''s' || 3L"),
        ("/* /* :number */ :number */ :number", "/* /* :number */ :number */ 3L"),
        ("-- :number \\\n:number", "-- :number \\\n:number"),
        ("-- :number\n:number", "-- :number\n3L"),
    ],
)
def test_labels_become_literals_in_place_of_values(sql: str, expected: str) -> None:
    """All characters in them are quoted, and times are in UTC."""
    assert put_in(sql, LABELS) == expected


@pytest.mark.parametrize(
    "sql",
    [
        "':number'",
        '":number"',
        "'\\':number'",
        "`:number`",
        "`a``:number`",
        "x::number",
        "x ::number",
        "payload:number",
        "payload :number",
        "payload:lane:number",
        "payload[0]:number",
        "f(payload):number",
        "`payload`:number",
        "':' || payload:number",
        ":numbers",
        ":Number",
        "'never ended :number",
        "/* never ended :number",
    ],
)
def test_text_that_is_no_label_is_not_replaced(sql: str) -> None:
    """It is in strings, names, comments, casts, parts of a value, or a longer word."""
    assert put_in(sql, LABELS) == sql


@pytest.mark.parametrize(
    ("sql", "same"),
    [
        ("lower(email)", True),
        ("rand()", False),
        ("RAND ( 7 )", False),
        ("`now`() > at", False),
        ("current_timestamp > at", False),
        ("current_date()", False),
        ("'rand()' || -- now()\n x /* uuid() */", True),
        ("user = 'x' and version > 1 and mode is null and `first` = last", True),
        ("my_schema.my_function(x)", False),
        ("a.b.c + 1.5 * f(x)", True),
        (":batch_time > at", True),
        ("_metadata.file_name", False),
        ("first(x)", False),
        ("select * from rows limit 3", False),
        ("select * from rows order by limit", True),
        ("row_number() over (order by x)", False),
    ],
)
def test_an_expression_with_a_changing_call_is_not_repeatable(sql: str, same: bool) -> None:
    """A column or a string with the name of such a function is no call."""
    assert is_repeatable_sql(sql) is same


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("select * from rows", {"rows"}),
        ("select * from ROWS r, dim d", {"rows", "dim"}),
        ("select * from (select * from rows) x, dim", {"rows", "dim"}),
        ("with d as (select 1) select * from rows join d on true", {"rows"}),
        ("select extract(year from at), trim(both 'x' from y) from rows group by a, b", {"rows"}),
        ("select * from rows lateral view explode(tags) t as tag", {"rows"}),
        ("select * from rows, lateral explode(tags)", {"rows"}),
        ("select * from rows where id in (select id from `other`)", {"rows", "other"}),
        ("select a from rows union all select b from main.x.y", {"rows", "main."}),
        ("from rows select a, b", {"rows"}),
        ("select ', from x' from rows -- from z", {"rows"}),
        ("select * from rows cross join f(3)", {"rows", "f("}),
    ],
)
def test_the_tables_of_a_query_are_listed(sql: str, tables: set[str]) -> None:
    """Tables that the query defines are left out. Strings and comments name no tables."""
    assert list_tables(sql) == tables


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "filter: expected an expression, got nothing; for NULL, quote it: 'null'"),
        (True, "filter: expected an expression, got True; quote it if it is one"),
        (" ", "filter: expected an expression, got ' '; quote it if it is one"),
        ("sum(x) over (partition by y) > 1", "filter: a window needs more than one row; write it in the stage sql"),
        ("x in (select 1)", "filter: a query needs more than one row; write it in the stage sql"),
    ],
)
def test_an_invalid_row_expression_is_refused(value: object, says: str) -> None:
    """The message begins with the field."""
    with pytest.raises(ValueError) as error:  # noqa: PT011 -- the whole message is compared
        check_row_expression("filter", value)
    assert str(error.value) == says


@pytest.mark.parametrize("sql", ["'(select 1)'", "`) over (`", "f(selected)", "x -- (select 1)", "overs(1)"])
def test_keywords_in_strings_names_and_comments_are_allowed(sql: str) -> None:
    """They have no meaning there."""
    check_row_expression("filter", sql)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([], r"columns: expected a mapping"),
        ({}, r"columns: expected a mapping"),
        ({"a": 1}, r"columns\.a: expected an expression, got 1"),
        ({1: "a"}, r"columns: expected the name of a column, got 1"),
        ({"_wherry_x": "a"}, r"columns: '_wherry_x' cannot be a column"),
        ({"a": "1", "A": "2"}, r"columns: 'A' is there twice"),
    ],
)
def test_an_invalid_mapping_of_expressions_is_refused(value: object, says: str) -> None:
    """The message names the invalid column."""
    with pytest.raises(ValueError, match=says):
        check_row_expressions("columns", value)


def test_valid_names_of_columns_are_accepted() -> None:
    """They may have any characters."""
    check_names("columns", ["a.b", "c d", "ü", "`", "%"])


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("A > b.c.d and `x ``y`.z = 'e' -- f", ["a", "b", "and", "x `y"]),
        ("abs (g) + 1e5 /* h */ >= i [0]", ["g", "i"]),
        ("a\n. b = a", ["a"]),
        ("", []),
    ],
)
def test_columns_are_distinguished_from_fields_functions_and_text(sql: str, columns: list[str]) -> None:
    """Each is listed once, in lower case. A word of SQL may be a column too."""
    assert list_columns(sql) == columns


def test_columns_are_replaced_by_other_expressions() -> None:
    """Fields, functions and text with the same name remain."""
    sql = "A + s.a + a(1) + `a` > 'a'"
    assert put_for(sql, {"a": "(1)"}) == "(1) + s.a + a(1) + (1) > 'a'"


@pytest.mark.parametrize("sql", ["a > rand()", "a = :lane", "sum(a) over () > 1", ""])
def test_a_condition_that_may_vary_between_batches_is_refused(sql: str) -> None:
    """It depends on chance, on the batch, or on other rows."""
    check_condition("where", "a::string > ':lane'")
    with pytest.raises(ValueError, match=r"^where: "):
        check_condition("where", sql)


@pytest.mark.parametrize("sql", ["a > 1", "f(a)[0] = ')'", "a -- (", "a /* ( /* ) */ */", "`(` = 1", "'it\\'s (' = b"])
def test_an_expression_in_brackets_has_the_same_meaning(sql: str) -> None:
    """A comment at its end does not hide the closing bracket."""
    assert enclose(sql) == f"({sql}\n)"


@pytest.mark.parametrize("sql", ["a) or (b", "f(a", "a]", "'a", "`a", '"a', "a -- x\n)", "a -- x\\"])
def test_an_expression_with_unbalanced_brackets_is_not_enclosed(sql: str) -> None:
    """Spark then reports what is wrong with it."""
    assert enclose(sql) is None
