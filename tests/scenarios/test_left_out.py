"""A new column of the files that the written schema leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.operations.printing import format_status
from runners.pipeline import Pipeline


@pytest.mark.usefixtures("no_spark")
def test_a_run_says_once_what_the_schema_leaves_out_and_status_counts_it(tmp_path: Path) -> None:
    """The next run says so again, with the columns that came later. A run without new rows is silent."""
    (tmp_path / "in").mkdir()
    text = "name: p\norigin: {files: {path: in, format: json, schema: id long}}\n"
    (tmp_path / "p.yaml").write_text(text + "destinations: [{delta: {path: out}}]\nrun: {batch: {files: 1}}\n")
    pipeline = Pipeline.load(tmp_path / "p.yaml")
    (tmp_path / "in" / "a").write_text('{"id": 1}\n')
    assert pipeline.run().notices == ()
    assert pipeline.status()["left_out"] == {}
    for name in "bcd":
        (tmp_path / "in" / name).write_text('{"id": 1, "tip": 2}\n')
    (notice,) = pipeline.run().notices
    assert "columns that the schema leaves out: tip. Add them" in notice
    assert pipeline.run().notices == ()
    (tmp_path / "in" / "e").write_text('{"id": 1, "tip": 2, "fee": 3}\n')
    (notice,) = pipeline.run().notices
    assert "leaves out: tip, fee." in notice
    status = pipeline.status()
    assert status["left_out"] == {"files": ["tip", "fee"]}
    assert "2 columns of files that the schema does not have: tip, fee" in format_status(status)
