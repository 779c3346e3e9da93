"""The header of a CSV file."""

from __future__ import annotations

from pathlib import Path

import pytest

from origins.errors import OriginError
from origins.files.csv_header import read_header
from origins.files.listing import parse_pattern
from tests.origins.files.test_listing import NOBODY


def test_a_header_that_may_not_be_read_is_an_error_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is not damaged, so the error does not tell the user to replace it."""

    def forbidden(path: str, *_: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("origins.files.csv_header._read_first_line", forbidden)
    with pytest.raises(OriginError, match=f"{tmp_path}/a.csv cannot be read: Permission denied") as told:
        read_header(NOBODY, parse_pattern(str(tmp_path)), "a.csv", {})
    assert told.value.hint == "Give this user the right to read it, or move it out of the path."
