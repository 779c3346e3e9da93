"""Spark writes rows as files of a table in an object store, and Wherry commits them by a conditional PUT."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.child import clean_environment, run
from tests.stores.s3 import S3

pytestmark = pytest.mark.spark


@pytest.mark.long
@pytest.mark.promise("CD-22")
def test_spark_writes_the_files_and_wherry_commits_them(s3: S3) -> None:
    """The table's log has no commit by Spark, and a failed write leaves no file with rows."""
    done = run(
        [sys.executable, "-m", "tests.destinations.delta.staged_appends", s3.behind, s3.bucket], clean_environment()
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert said["writes"] == {
        "chosen": "FileAppend",
        "rows": 4,
        "version": 1,
        "same": True,
        "stats": True,
        "logs": [],
        "files": 1,
    }
    assert said["spelling"] == [{"Id": 0, "Name": "x"}]
    assert said["several"] == [[1, 2, 3, 4], 10, 4]
    assert said["nothing"] == [0, []]
    assert (bool(said["raises"][0]), said["raises"][1]) == (True, [])
    assert (bool(said["late"][0]), said["late"][1]) == (True, [])
    assert said["fenced"] == ["MetadataChanged", 0]
    assert said["partitioned"] is False
