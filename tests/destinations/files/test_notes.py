"""The notes of `files` describe the batches in its folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from destinations.batch_folders import BatchFolders, make_note, name_folder
from destinations.conformance import make_label
from destinations.destination import Written
from origins.codec import encode


@pytest.mark.parametrize(("content", "code"), [(b"row", None), (b"", "FILE_GONE")])
@pytest.mark.parametrize("size", [{"bytes": None}, {}])
def test_a_note_without_bytes_tells_only_whether_the_rows_are_gone(
    tmp_path: Path, size: dict[str, None], content: bytes, code: str | None
) -> None:
    """The writer of the note did not know the size."""
    folder = tmp_path / "_lane=a" / "_batch=00000001-abc"
    folder.mkdir(parents=True)
    (folder / "part-0.json").write_bytes(content)
    note = {"keys": ["plan/files"], "pipeline": "orders", "lane": "a", "number": 1, "rows": 1, **size}
    (folder / "_wherry.json").write_text(json.dumps(encode(note)))
    (brought,), losses = BatchFolders(tmp_path).list_brought()
    assert losses == []
    assert brought.rows == 1
    assert (brought.loss and brought.loss.code) == code


@pytest.mark.parametrize("job", [{"id": "41", "run": "42"}, {}])
def test_a_note_has_the_ids_of_the_job_that_planned_the_batch(tmp_path: Path, job: dict[str, str]) -> None:
    """An audit finds them with the batch. A batch without a job has none."""
    folder = tmp_path / "_lane=a" / "_batch=00000001-abc"
    folder.mkdir(parents=True)
    planned = make_label()
    mine = replace(planned, batch=replace(planned.batch, job=job))
    note = make_note([mine], Written(rows=0, bytes=0))
    (folder / "_wherry.json").write_text(json.dumps(encode(note)))
    (brought,), _ = BatchFolders(tmp_path).list_brought()
    assert brought.label.job == job


def test_the_labels_of_a_folder_begin_with_the_highest_number(tmp_path: Path) -> None:
    """Each label says what the batch read, if its writer knew it."""
    for number, lane, reads in ((1, "b", "7f"), (2, "a", ""), (3, "b", "7f")):
        planned = make_label(number=number, lane=lane)
        mine = replace(planned, batch=replace(planned.batch, reads=reads))
        folder = tmp_path / name_folder([mine])
        folder.mkdir(parents=True)
        (folder / "_wherry.json").write_text(json.dumps(encode(make_note([mine], Written(rows=0, bytes=0)))))
    labels = BatchFolders(tmp_path).list_labels()
    assert [(each.number, each.reads) for each in labels] == [(3, "7f"), (2, ""), (1, "7f")]
