"""YAML is read as a tree. It has types of YAML 1.2, refuses unsafe documents, and keeps positions."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.definitions.document import (
    DEEPEST,
    LARGEST,
    MOST,
    DefinitionError,
    Fields,
    Problem,
    decode_text,
    parse,
    suggest_nearest,
    to_plain,
)


def parse_values(text: str) -> Any:
    return to_plain(parse(text, "x.yaml"))


def find_refusal(text: str) -> DefinitionError:
    with pytest.raises(DefinitionError) as caught:
        parse(text, "x.yaml")
    return caught.value


@pytest.mark.parametrize(
    "text", ["no", "off", "yes", "on", "y", "2026-01-02", "12:30:00", "1_000", "0b1", "1,5", "=", "<"]
)
def test_values_without_a_type_in_yaml_1_2_are_text(text: str) -> None:
    """Dates, times and the words of YAML 1.1 are text."""
    assert parse_values(f"a: {text}") == {"a": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("-12", -12),
        ("007", 7),
        ("0o17", 15),
        ("0xff", 255),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
    ],
)
def test_values_with_a_type_in_yaml_1_2_have_it(text: str, value: object) -> None:
    """These are the core schema's truth values, numbers and NULL."""
    assert parse_values(f"a: {text}") == {"a": value}
    assert type(parse_values(f"a: {text}")["a"]) is type(value)


@pytest.mark.parametrize("text", ["'12'", '"true"', "|-\n  12", ">-\n  null"])
def test_quoted_and_block_values_are_text(text: str) -> None:
    """Quotes make any value text."""
    assert isinstance(parse_values(f"a: {text}")["a"], str)


@pytest.mark.parametrize("text", ["9" * 5_000, "1e999", ".inf", ".nan"])
def test_numbers_that_are_too_large_are_text(text: str) -> None:
    """An option refuses them as text. Reading them takes no time."""
    assert parse_values(f"a: {text}") == {"a": text}


def test_keys_are_text_as_they_are_written() -> None:
    """A column may be called `1`, `no` or `null`."""
    assert parse_values("{1: a, no: b, null: c, 1.50: d}") == {"1": "a", "no": "b", "null": "c", "1.50": "d"}


def test_everything_has_its_line_and_column() -> None:
    """Lines and columns count from 1."""
    node = parse("a: 1\nb:\n  - c: x\n", "x.yaml")
    assert isinstance(node, Fields)
    assert (node.fields["a"].line, node.fields["a"].column) == (1, 4)
    assert (node.keys["b"].line, node.keys["b"].column) == (2, 1)


def test_every_duplicate_key_is_reported_with_both_lines() -> None:
    """The second value would replace the first."""
    problems = find_refusal("a: 1\nb: 2\na: 3\nc: {d: 1, d: 2}\n").problems
    assert [(problem.path, problem.line) for problem in problems] == [("a", 3), ("c.d", 4)]
    assert "first in line 1" in problems[0].message


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system [ls]", "!!python/name:os.system", "!mine x", "!!str 1", "!!set {a}"]
)
def test_tags_are_refused(tag: str) -> None:
    """A definition cannot create an object."""
    assert "expected no tags, got '!" in find_refusal(f"a: {tag}").problems[0].message


def test_an_alias_has_the_value_of_its_anchor() -> None:
    """It may also be the `<<` of a mapping. The mapping's keys override it."""
    text = "a: &a {x: 1, y: 2}\nb: *a\nc: {<<: *a, x: 3}\nd:\n  <<: [*a, {z: 4}]\n"
    assert parse_values(text) == {
        "a": {"x": 1, "y": 2},
        "b": {"x": 1, "y": 2},
        "c": {"x": 3, "y": 2},
        "d": {"x": 1, "y": 2, "z": 4},
    }


def test_an_alias_bomb_is_refused_at_once() -> None:
    """Each alias counts as its values. Nothing is expanded for the count."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 40)]
    began = time.monotonic()
    assert f"more than {MOST:,} values" in str(find_refusal("\n".join(lines)))
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &a [*a]", "inside of its own anchor"),
        ("a: */5 *", "the anchor &/5 of this alias is missing; define it above, or quote the text"),
    ],
)
def test_an_alias_in_a_cycle_or_without_an_anchor_is_refused(text: str, said: str) -> None:
    """Such a document is not read."""
    assert said in str(find_refusal(text))


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000, "? " * 100_000, "{a: " * 100_000])
def test_nesting_is_limited(text: str) -> None:
    """A document cannot exhaust the stack."""
    assert f"at most {DEEPEST} nested levels" in str(find_refusal(text))


@pytest.mark.parametrize(
    ("text", "line", "column", "hint"),
    [
        ("a: [1,\nb: 2\n", 3, 1, ""),
        ("a: 1\nb: c: d\n", 2, 5, "Quote text with a colon"),
        ("a:\n\tb: 1\n", 2, 1, "with spaces, not with tabs"),
        ("a: @b\n", 1, 4, "Quote text that begins"),
        ("a: [${X}]\n", 1, 6, 'Quote a parameter between brackets or braces: "${NAME}"'),
    ],
)
def test_invalid_yaml_is_reported_with_line_and_column(text: str, line: int, column: int, hint: str) -> None:
    """A hint names the usual correction."""
    error = find_refusal(text)
    assert f"this is not YAML (line {line}, column {column})" in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the definition is empty"),
        ("# nothing\n", "the definition is empty"),
        ("a: 1\n---\nb: 2\n", "found a second one"),
        ("{? {a: 1} : b}", "expected a name before the colon"),
        ('a: "\\ud800"', "half of a surrogate pair"),
        ('a: "\\UFFFFFFFF"', "this is not YAML"),
        ("a: \x07", "this is not YAML"),
        ("a: {<<: 5}", "expected the alias of a mapping"),
    ],
)
def test_a_document_that_is_no_definition_is_refused(text: str, said: str) -> None:
    """None of these raises an exception of the parser."""
    assert said in str(find_refusal(text))


def test_a_file_that_is_too_large_is_not_read() -> None:
    """The limit is 1 MiB."""
    with pytest.raises(DefinitionError, match="at most 1 MiB"):
        decode_text(b" " * (LARGEST + 1), "x.yaml")


def test_other_encodings_are_reported_with_their_line() -> None:
    """Latin-1 is not read as UTF-8."""
    with pytest.raises(DefinitionError, match=r"line 2 .*0xfc; save the file as UTF-8"):
        decode_text("a: 1\nb: ü".encode("latin-1"), "x.yaml")


def test_a_byte_order_mark_is_not_part_of_the_text() -> None:
    """Editors on Windows write one."""
    assert decode_text(b"\xef\xbb\xbfa: 1", "x.yaml") == "a: 1"


@given(st.text(alphabet="ab:-[]{}&*!|>'\"%@`,?# \n\t~<=0x1\\\ufeff\x85\u2028${}", max_size=60))
def test_any_text_is_a_document_or_a_definition_error(text: str) -> None:
    """The result is always a tree or a DefinitionError."""
    with contextlib.suppress(DefinitionError):
        to_plain(parse(text, "x.yaml"))


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("pth", ["format", "path"], "did you mean 'path'?"),
        ("PATH", ["format", "path"], "did you mean 'path'?"),
        ("xyz", ["format", "path"], "expected one of format, path"),
        ("xyz", ["path"], "expected 'path'"),
        ("xyz", [], "none is expected here"),
        ("x" * 100_000, ["path"], "expected 'path'"),
    ],
)
def test_an_unknown_name_is_reported_with_the_nearest_or_all_names(name: str, known: list[str], said: str) -> None:
    """Case and length of the name do not matter."""
    assert suggest_nearest(name, known) == said


def test_problems_are_listed_with_their_lines_in_a_column() -> None:
    """A problem without a line leaves the column empty. If no problem has a line, there is no column."""
    placed = Problem(path="a.b", message="is wrong", line=12)
    free = Problem(path="", message="is missing")
    assert str(DefinitionError("x.yaml", [placed, free])) == (
        "x.yaml: 2 problems\n  line 12  a.b: is wrong\n           is missing"
    )
    assert str(DefinitionError("x.yaml", [free], hint="Do.")) == "x.yaml: 1 problem\n  is missing\nDo."


def test_a_thousand_problems_are_counted_but_not_all_printed() -> None:
    """`problems` has all of them."""
    error = DefinitionError("x.yaml", [Problem(path=f"a{n}", message="is wrong") for n in range(1_000)])
    assert len(error.problems) == 1_000
    assert str(error).splitlines()[-1] == "  and 950 more"
