"""Expressions as a definition holds them."""

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
def test_labels_become_literals_where_a_value_stands(sql: str, expected: str) -> None:
    """With everything in them quoted, and times in UTC."""
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
def test_everything_else_stays_as_it_is(sql: str) -> None:
    """Strings, names, comments, casts, parts of a value, and words that only begin like a label."""
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
def test_whether_an_expression_gives_the_same_again(sql: str, same: bool) -> None:
    """A call that may change is found, and a column or a string of its name is none."""
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
def test_the_tables_that_a_query_asks(sql: str, tables: set[str]) -> None:
    """All but those that it makes itself; strings and comments name none."""
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
def test_what_is_no_expression_over_a_row_is_refused(value: object, says: str) -> None:
    """The message begins with the field."""
    with pytest.raises(ValueError) as error:  # noqa: PT011 -- the whole message is compared
        check_row_expression("filter", value)
    assert str(error.value) == says


@pytest.mark.parametrize("sql", ["'(select 1)'", "`) over (`", "f(selected)", "x -- (select 1)", "overs(1)"])
def test_words_that_only_look_so_pass(sql: str) -> None:
    """In strings, names and comments they mean nothing."""
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
def test_what_is_no_mapping_of_expressions_is_refused(value: object, says: str) -> None:
    """With the name of the column that is wrong."""
    with pytest.raises(ValueError, match=says):
        check_row_expressions("columns", value)


def test_names_that_may_be_columns_pass() -> None:
    """Whatever stands in them."""
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
def test_columns_are_told_from_fields_functions_and_text(sql: str, columns: list[str]) -> None:
    """In small letters, each once; a word of SQL may be a column too."""
    assert list_columns(sql) == columns


def test_other_expressions_are_put_in_the_place_of_columns() -> None:
    """Fields, functions and text of the same name stay."""
    sql = "A + s.a + a(1) + `a` > 'a'"
    assert put_for(sql, {"a": "(1)"}) == "(1) + s.a + a(1) + (1) > 'a'"


@pytest.mark.parametrize("sql", ["a > rand()", "a = :lane", "sum(a) over () > 1", ""])
def test_a_condition_that_is_not_the_same_in_every_batch_is_refused(sql: str) -> None:
    """By chance, by the batch, or by other rows."""
    check_condition("where", "a::string > ':lane'")
    with pytest.raises(ValueError, match=r"^where: "):
        check_condition("where", sql)


@pytest.mark.parametrize("sql", ["a > 1", "f(a)[0] = ')'", "a -- (", "a /* ( /* ) */ */", "`(` = 1", "'it\\'s (' = b"])
def test_an_expression_in_brackets_means_the_same(sql: str) -> None:
    """A comment at its end does not take the bracket."""
    assert enclose(sql) == f"({sql}\n)"


@pytest.mark.parametrize("sql", ["a) or (b", "f(a", "a]", "'a", "`a", '"a', "a -- x\n)", "a -- x\\"])
def test_an_expression_that_would_leave_its_brackets_stays_alone(sql: str) -> None:
    """Spark then says what is wrong with it."""
    assert enclose(sql) is None
