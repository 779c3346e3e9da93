"""How protected columns of a row are masked."""

from __future__ import annotations

from typing import Any

import pytest

from origins.batch import Json
from origins.protection import Protection

EMAIL = Protection(("email",))


def mask_nack(message: str, row: Any, **other: Any) -> dict[str, Any]:
    return EMAIL.mask_nack({"stage": "cast", "message": message, "row": row, **other})


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("anna@x.com", "a***"),
        ("abc", "***"),
        ("", "***"),
        (None, None),
        (5, "***"),
        ([1, "anna"], "***"),
        ({"name": "anna"}, "***"),
        ({"raw": "anna"}, "***"),
        (False, "***"),
    ],
)
def test_a_protected_value_is_masked(value: Any, shown: Any) -> None:
    """The first character of a long text remains, and so does NULL."""
    assert EMAIL.mask_row({"id": 7, "email": value}) == {"id": 7, "email": shown}


def test_names_are_case_insensitive() -> None:
    """Names in a definition are case insensitive everywhere."""
    assert Protection(("Email",)).mask_row({"eMAIL": "anna@x.com"}) == {"eMAIL": "a***"}


def test_without_protection_rows_and_messages_are_unchanged() -> None:
    """No value is masked."""
    row: dict[str, Json] = {"id": 7, "email": "anna@x.com"}
    given: dict[str, Json] = {"stage": "cast", "message": "column email: 'anna@x.com' is not a long", "row": row}
    assert Protection().mask_row(row) == row
    assert Protection().mask_nack(given) == given
    assert Protection().mask_error(ValueError("anna"), "ValueError: anna") == "ValueError: anna"


def test_a_value_that_another_column_repeats_is_masked_there_too() -> None:
    """It may be in another case, inside other text or structures, or be known only from the original row."""
    row: dict[str, Json] = {
        "copy": "ANNA@x.com",
        "text": "to anna@x.com, please",
        "deep": {"all": ["anna@x.com", 1]},
        "id": 7,
    }
    shown = EMAIL.mask_row(row, {"email": "anna@x.com"})
    assert shown == {"copy": "a***", "text": "to a***, please", "deep": {"all": ["a***", 1]}, "id": 7}


def test_short_values_are_not_masked_in_other_columns() -> None:
    """An `id` of 7 does not mask every 7. A longer number is masked as a whole, and not inside another number."""
    numbers = Protection(("id",))
    assert numbers.mask_row({"id": 7, "n": 7, "t": "7"}) == {"id": "***", "n": 7, "t": "7"}
    row: dict[str, Json] = {"id": 1234, "n": 1234, "t": "no 1234", "longer": 12345, "text": "12345"}
    assert numbers.mask_row(row) == {"id": "***", "n": "***", "t": "no ***", "longer": 12345, "text": "12345"}


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("column email: 'sieben' is not a long", "column email: 's***' is not a long"),
        ("column EMAIL: '5.50' is not a long", "column EMAIL: *** is not a long"),
        ("column id: 'x' is not a long; column email: '5.50' is not a long", None),
        ("too long; email = '5.50', id = 'x'", "too long; email = ***, id = 'x'"),
        ("tables/people has no row with email = 5.50", "tables/people has no row with email = ***"),
        ("tables/people has no row with email = 5.50, id = x", "tables/people has no row with email = ***, id = x"),
        ("no_email = 'x' is fine", "no_email = 'x' is fine"),
    ],
)
def test_a_message_shows_no_protected_value(message: str, shown: str | None) -> None:
    """The row may have the value in another form than the message. The value of another column remains."""
    value = "sieben" if "sieben" in message else 5.5
    said = mask_nack(message, {"email": value, "id": "x"})["message"]
    expected = shown or "column id: 'x' is not a long; column email: *** is not a long"
    assert said == expected


def test_a_long_value_is_masked_where_its_beginning_is_quoted() -> None:
    """Messages quote the first 80 characters."""
    value = "canary " * 40
    said = mask_nack(f"rule broken by '{value[:80]}…'", {"email": value})["message"]
    assert "canary" not in said


def test_both_payloads_of_a_refused_row_are_masked() -> None:
    """The column may have another name in one of them. A payload that is not kept remains None."""
    shown = mask_nack("no", {"contact": "anna@x.com"}, original={"email": "anna@x.com"}, number=5)
    assert (shown["row"], shown["original"], shown["number"]) == ({"contact": "a***"}, {"email": "a***"}, 5)
    assert mask_nack("no", {"email": "anna@x.com"}, original=None)["original"] is None


def test_a_line_that_could_not_be_read_is_hidden() -> None:
    """The positions of its values are unknown."""
    shown = EMAIL.mask_nack(
        {"stage": "origin", "message": "no JSON", "row": {"raw": '{"email": "anna'}, "original": None}
    )
    assert (shown["row"], shown["message"]) == ({"raw": "***"}, "no JSON")


BUYER: Json = {"id": 7, "buyer": {"email": "anna@x.com", "age": 5, "home": {"zip": "10115"}}}


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        ("buyer.email", {"id": 7, "buyer": {"email": "a***", "age": 5, "home": {"zip": "10115"}}}),
        ("BUYER.Home.Zip", {"id": 7, "buyer": {"email": "anna@x.com", "age": 5, "home": {"zip": "***"}}}),
        ("buyer.home", {"id": 7, "buyer": {"email": "anna@x.com", "age": 5, "home": "***"}}),
        ("email", BUYER),
    ],
)
def test_a_field_inside_a_column_is_protected_by_its_path(column: str, shown: Any) -> None:
    """The path has the names of the columns above it. A field with the same name elsewhere is not masked."""
    assert Protection((column,)).mask_row(BUYER) == shown


def test_a_field_is_protected_in_every_item_of_a_list() -> None:
    """Its value is also masked in other columns, and in a message about the field."""
    lines = Protection(("lines.note",))
    row: dict[str, Json] = {"lines": [{"note": "for anna", "n": 1}, {"note": None, "n": 2}], "copy": "sent for anna"}
    said: dict[str, Json] = {"stage": "cast", "message": "column lines.note: 'for anna' is not a date", "row": row}
    shown = {"lines": [{"note": "f***", "n": 1}, {"note": None, "n": 2}], "copy": "sent f***"}
    assert lines.mask_nack(said) == {**said, "message": "column lines.note: 'f***' is not a date", "row": shown}


def test_a_message_about_a_field_of_a_protected_column_is_masked() -> None:
    """The form of the value in the message does not matter."""
    said = Protection(("buyer",)).mask_nack(
        {"stage": "expect", "message": "column buyer.age: 5.0 is odd", "row": BUYER}
    )
    assert said["message"] == "column buyer.age: ***"


@pytest.mark.parametrize(
    ("column", "covered"),
    [("buyer", True), ("buyer.email", True), ("Buyer.Email.Host", True), ("buyers", False), ("buyer.age", False)],
)
def test_a_column_is_covered_by_a_protected_column_above_or_inside_it(column: str, covered: bool) -> None:
    """A finding about a column may contain the values of its fields."""
    assert Protection(("buyer.email",)).covers(column) == covered


@pytest.mark.parametrize(
    ("error", "said", "shown"),
    [
        (
            ValueError("anna"),
            "ValueError: anna",
            "ValueError (text hidden, may hold a protected value)",
        ),
        (RuntimeError(""), "anna: no name", "RuntimeError (text hidden, may hold a protected value)"),
        (OSError(28, "No space left on device"), "No space left on device", "No space left on device"),
        (
            RuntimeError(),
            '[CAST_INVALID_INPUT] The value \'anna\' of the type "STRING" is no "INT".',
            '[CAST_INVALID_INPUT] The value \'***\' of the type "STRING" is no "INT".',
        ),
        (
            RuntimeError(),
            "[USER_RAISED_EXCEPTION] anna",
            "RuntimeError (text hidden, may hold a protected value)",
        ),
        (
            RuntimeError(),
            "[USER_RAISED_EXCEPTION] stage 'lookup': people has several rows with email = anna; make it unique",
            "[USER_RAISED_EXCEPTION] stage 'lookup': people has several rows with email = ***; make it unique",
        ),
    ],
)
def test_an_error_from_outside_wherry_shows_no_value(error: Exception, said: str, shown: str) -> None:
    """A Spark error loses the quoted values, and a function error keeps only its type. A system error is unchanged."""
    assert EMAIL.mask_error(error, said) == shown
