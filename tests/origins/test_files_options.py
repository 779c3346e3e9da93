"""Options that `files` refuses without Spark."""

from __future__ import annotations

import re
from typing import Any

import pytest

from origins.files import Files


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"path": " "}, "path: expected a file, a folder or a pattern, got nothing"),
        ({"format": "xml"}, "format: expected json, csv, parquet, text, got 'xml'"),
        ({"lanes": 0}, "lanes: expected at least 1, got 0"),
        ({"exclude": ["a.json", ""]}, "exclude: expected names of files, or patterns of names, got ''"),
        ({"exclude": ["in/"]}, "exclude: expected names of files, or patterns of names, got 'in/'"),
        ({"max_files": 0}, "max_files: expected at least 1, got 0"),
        ({"max_files": 3, "batch": "whole"}, "max_files: expected none beside `batch: whole`, got 3"),
        ({"batch": "all"}, "batch: expected limited or whole, got 'all'"),
        ({"min_age": "soon"}, "min_age: expected a duration such as"),
        (
            {"metadata": ["file_owner"]},
            "metadata: expected file_path, file_name, file_size, file_modification_time",
        ),
        ({"after": "burn"}, "after: expected keep, move or delete, got 'burn'"),
        (
            {"path": "hdfs://b/in", "after": "delete"},
            "after: expected keep, since Spark cannot delete the files of hdfs",
        ),
        (
            {"path": "s3a://b/in", "after": "move", "move_to": "s3a://c/done"},
            "move_to: expected a folder of s3a://b, got 's3a://c/done'",
        ),
        ({"move_to": "done"}, "move_to: expected `after: move` beside it, got after: keep"),
        (
            {"after": "move", "move_to": "s3a://b/done"},
            "move_to: expected a folder of this machine, got 's3a://b/done'",
        ),
        ({"options": {"mode": "DROPMALFORMED"}}, "options: 'mode' cannot be set; a line that cannot be read"),
        (
            {"format": "json", "options": {"Charset": "ISO-8859-1"}},
            "options: 'Charset' cannot be set; `encoding` says how lines are encoded",
        ),
        ({"options": {"ignoreCorruptFiles": True}}, "options: 'ignoreCorruptFiles' cannot be set; it loses"),
        ({"options": {"multi_line": True}}, "options: unknown option 'multi_line'; did you mean 'multiLine'?"),
        ({"options": {"encoding": "cp1252"}}, "options: encoding: expected one of UTF-8, UTF8, US-ASCII, ISO-8859-1,"),
        (
            {"format": "csv", "options": {"encoding": "UTF-16"}},
            "options: expected multiLine: true beside encoding: utf-16",
        ),
        (
            {"options": {"encoding": "UTF-16", "lineSep": "\n"}},
            "options: expected multiLine: true beside encoding: utf-16, for files with one JSON value each",
        ),
        ({"options": {"encoding": "utf-32"}}, "options: expected multiLine: true beside encoding: utf-32"),
        (
            {"format": "csv", "options": {"charset": "klingon"}},
            "options: encoding: expected one of UTF-8, UTF8, US-ASCII, ISO-8859-1,",
        ),
        ({"format": "csv", "options": {"heeader": True}}, "options: unknown option 'heeader'; did you mean 'header'?"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], says: str) -> None:
    """The message begins with the option and names what is valid."""
    with pytest.raises(ValueError, match=f"^{re.escape(says)}"):
        Files(**{"path": "in", "format": "json", **options})


@pytest.mark.parametrize("options", [{"MULTILINE": True}, {"fs.s3a.endpoint": "http://x"}, {"ioThreads": 4}])
def test_unknown_options_are_accepted(options: dict[str, Any]) -> None:
    """They may be for another version of Spark. The case of letters does not matter."""
    assert Files(path="in", format="json", options=options).options == options
