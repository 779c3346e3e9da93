"""Protected columns. Wherry masks their values wherever it shows a row, and the messages that quote them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from origins.batch import Json
from origins.secret import EXCERPT

MASK = "***"
_FOUND_ANYWHERE = 3
"""The shortest value that is masked in other columns and in messages too. Shorter values occur everywhere."""
_READ_BY = "origin"
"""The stage of a row that could not be read. Its entry shows the line as the origin found it."""
_QUOTED = re.compile(r"(?<!stage )'[^']*'|=\([^)]*\)|(?<=record parsing: ).*")
_NUMBER = re.compile(r"[-+.\d]+")
_CONDITION = re.compile(r"\[(?!USER_RAISED_EXCEPTION\] (?!stage '))[A-Z][A-Z0-9_.]+\]")
"""The beginning of a Spark error. Errors that an expression raises are excluded, because their text is arbitrary."""


@dataclass(frozen=True)
class Protection:
    """The columns of a pipeline whose values are masked, in upper or lower case.

    `buyer.email` is a field inside a column, which may also hold a list of structs.
    """

    columns: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.columns)

    def mask_row(self, row: Json, *kin: Json) -> Json:
        """Return the row with these columns masked. A value that another column repeats is masked there too.

        `kin` are other versions of the same row. They have values that this one may no longer have under the same
        names.
        """
        return self._mask_value(row, self.list_texts(row, *kin)) if self else row

    def mask_nack(self, nack: Mapping[str, Json]) -> dict[str, Json]:
        """Return a refused row with its `row`, its `original` and its `message` masked.

        Of a line that could not be read nothing is shown, since the positions of the columns are unknown.
        """
        if not self:
            return dict(nack)
        rows = {name: nack[name] for name in ("row", "original") if nack.get(name) is not None}
        values = self.list_texts(*rows.values())
        shown = {name: self._mask_value(row, values) for name, row in rows.items()}
        if nack.get("stage") == _READ_BY:
            shown = {name: {"raw": MASK} for name in rows}
        return {**nack, **shown, "message": self.mask_message(str(nack["message"]), values)}

    def mask_message(self, message: str, values: Sequence[str] = ()) -> str:
        """Return why a row is refused, without these values and without quotations of a protected column."""
        masked = _remove_texts(message, values)
        for name in map(re.escape, self.columns):
            after = rf"(?i)(\bcolumn {name}(?:\.[\w.]+)?: |(?<![\w.]){name}(?:\.[\w.]+)? = )"
            masked = re.sub(
                rf"{after}(?!'?.?\*\*\*)('.*?'(?= is not |; |, |$)|[^';][^;]*?(?=, [^=;]+ = |; |$))",
                rf"\1{MASK}",
                masked,
            )
        return masked

    def mask_error(self, error: BaseException, message: str) -> str:
        """Return the message of another library's error without the values that it may quote.

        Quotations in a Spark error or an `OSError` are masked. Of any other error only its name is kept, because its
        text is arbitrary.
        """
        if not self:
            return message
        if isinstance(error, OSError) or _CONDITION.match(message):
            masks = {"'": f"'{MASK}'", "=": f"=({MASK})"}
            return self.mask_message(_QUOTED.sub(lambda found: masks.get(found.group()[:1], MASK), message))
        name = re.match(r"[A-Za-z_][\w.$]*(?:Error|Exception)(?=: )", message)
        return f"{name.group() if name else type(error).__name__} (text hidden, may hold a protected value)"

    def covers(self, column: str) -> bool:
        """Return whether this column or field may contain a protected value.

        It may if it is protected, is part of a protected one, or contains one.
        """
        name = f"{column.lower()}."
        return any(name.startswith(f"{each.lower()}.") or f"{each.lower()}.".startswith(name) for each in self.columns)

    def _is_protected(self, name: str) -> bool:
        return name.lower() in {column.lower() for column in self.columns}

    def list_texts(self, *rows: Json) -> list[str]:
        """Return the texts in protected columns, the longest first."""
        held = [text for row in rows for value in self._list_protected(row) for text in walk_texts(value)]
        return sorted(set(held), key=len, reverse=True)

    def _list_protected(self, value: Json, above: str = "") -> Iterator[Json]:
        """Yield the values in protected columns and fields.

        `above` is the position of the value, with a dot at its end.
        """
        if isinstance(value, list):
            for inner in value:
                yield from self._list_protected(inner, above)
        elif isinstance(value, Mapping):
            for name, inner in value.items():
                if self._is_protected(above + name):
                    yield inner
                else:
                    yield from self._list_protected(inner, f"{above}{name}.")

    def _mask_value(self, value: Json, values: Sequence[str], above: str = "") -> Json:
        if isinstance(value, list):
            return [self._mask_value(inner, values, above) for inner in value]
        if not isinstance(value, Mapping):
            return _hide_texts(value, values)
        return {
            name: _mask(inner)
            if self._is_protected(above + name)
            else self._mask_value(inner, values, f"{above}{name}.")
            for name, inner in value.items()
        }


def walk_texts(value: Json) -> Iterator[str]:
    """Yield all values inside a value as text, except NULL, true and false."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from walk_texts(inner)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _mask(value: Json) -> Json:
    """Return the mask. NULL stays NULL, and a longer text that is no number keeps its first character."""
    if value is None:
        return None
    if isinstance(value, str) and len(value) > _FOUND_ANYWHERE and not _NUMBER.fullmatch(value):
        return value[0] + MASK
    return MASK


def _hide_texts(value: Json, values: Sequence[str]) -> Json:
    if isinstance(value, str):
        return _remove_texts(value, values)
    is_number = value is not None and not isinstance(value, bool)
    return MASK if is_number and len(str(value)) >= _FOUND_ANYWHERE and str(value) in values else value


def _remove_texts(text: str, values: Sequence[str]) -> str:
    for value in values:
        if len(value) < _FOUND_ANYWHERE:
            continue
        for written in dict.fromkeys((value, value[:EXCERPT], repr(value)[1:-1], json.dumps(value)[1:-1])):
            number = _NUMBER.fullmatch(written)
            pattern = rf"(?<![\w.]){re.escape(written)}(?![\w.])" if number else re.escape(written)
            text = re.sub(pattern, lambda _, value=value: str(_mask(value)), text, flags=re.IGNORECASE)  # type: ignore[misc]
    return text
