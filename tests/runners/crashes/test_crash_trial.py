"""What a pipeline of somebody's own writes when it is crashed on trial."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from destinations.delta import Delta
from destinations.discard import Discard
from destinations.dlq import Dlq
from destinations.files import Files
from destinations.python import Python
from origins.batch import Batch
from origins.files import Files as FilesRead
from origins.memory import Memory
from runners.crashes.crash_trial import redirect_pipeline
from runners.model.errors import Refusal
from runners.model.spec import Hook
from runners.pipeline import Pipeline
from stages.filter import Filter


def pipeline(**other: Any) -> Pipeline:
    given: dict[str, Any] = {
        "name": "orders",
        "origin": FilesRead(path="landing/*.json", format="json", schema="id long"),
        "destinations": [Delta(table="main.shop.orders", mode="merge", keys=["id"], was="old")],
        "state": "state",
    }
    return Pipeline(**{**given, **other})


def test_all_that_is_written_lies_in_the_folder(tmp_path: Path) -> None:
    """Tables, folders, whatever has no place of its own, the state and the dead letter queue."""
    destinations = [
        Delta(table="main.shop.orders", mode="merge", keys=["id"], was="old"),
        Files(path="out", format="csv"),
        Python("load:write", name="push", stages=[Filter("id > 1")]),
    ]
    dlq = Dlq(destination=Delta(table="main.shop.refused"))
    hooks = [Hook(command=["logger"])]
    trial = redirect_pipeline(pipeline(destinations=destinations, dlq=dlq, hooks=hooks), tmp_path)
    assert trial.destinations == [
        Delta(path=f"{tmp_path}/orders", name="orders", mode="merge", keys=["id"]),
        Files(path=f"{tmp_path}/out", name="out", format="csv"),
        Delta(path=f"{tmp_path}/push", name="push", stages=[Filter("id > 1")]),
    ]
    assert (trial.state, trial.dlq.destination, trial.hooks) == (f"{tmp_path}/state", None, ())


def test_refused_rows_do_not_end_the_trial(tmp_path: Path) -> None:
    """What throws them away on purpose still does."""
    trial = redirect_pipeline(pipeline(dlq=Dlq(window=10, threshold=2, destination=Discard())), tmp_path)
    assert trial.dlq == Dlq(window=0, destination=Discard())


def test_files_that_were_read_are_kept(tmp_path: Path) -> None:
    """Though the definition moves them."""
    origin = FilesRead(path="landing/*.json", format="json", schema="id long", after="move", move_to="done")
    trial = redirect_pipeline(pipeline(origin=origin), tmp_path)
    assert trial.origin == FilesRead(path="landing/*.json", format="json", schema="id long")


@dataclass(frozen=True, kw_only=True)
class Acknowledging(Memory):
    """An origin elsewhere, which forgets what was carried."""

    def committed(self, spark: Any, batch: Batch) -> None:
        raise AssertionError("nobody tells it")


def test_an_origin_that_would_be_told_is_refused(tmp_path: Path) -> None:
    """It forgets rows that a trial has not delivered."""
    with pytest.raises(Refusal, match="must change nothing there"):
        redirect_pipeline(pipeline(origin=Acknowledging(schema="id long")), tmp_path)
