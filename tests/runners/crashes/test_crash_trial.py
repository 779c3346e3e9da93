"""How a user's pipeline is redirected for a trial of crashes."""

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
from stages.conditions import Filter


def make_pipeline(**other: Any) -> Pipeline:
    given: dict[str, Any] = {
        "name": "orders",
        "origin": FilesRead(path="landing/*.json", format="json", schema="id long"),
        "destinations": [Delta(table="main.shop.orders", mode="merge", keys=["id"], was="old")],
        "state": "state",
    }
    return Pipeline(**{**given, **other})


def test_everything_is_written_to_the_folder_of_the_trial(tmp_path: Path) -> None:
    """These are tables, folders, destinations without a place, the state and the DLQ."""
    destinations = [
        Delta(table="main.shop.orders", mode="merge", keys=["id"], was="old"),
        Files(path="out", format="csv"),
        Python("load:write", name="push", stages=[Filter("id > 1")]),
    ]
    dlq = Dlq(destination=Delta(table="main.shop.refused"))
    hooks = [Hook(command=["logger"])]
    trial = redirect_pipeline(make_pipeline(destinations=destinations, dlq=dlq, hooks=hooks), tmp_path)
    assert trial.destinations == [
        Delta(path=f"{tmp_path}/orders", name="orders", mode="merge", keys=["id"]),
        Files(path=f"{tmp_path}/out", name="out", format="csv"),
        Delta(path=f"{tmp_path}/push", name="push", stages=[Filter("id > 1")]),
    ]
    assert (trial.state, trial.dlq.destination, trial.hooks) == (f"{tmp_path}/state", None, ())


def test_refused_rows_do_not_stop_the_trial(tmp_path: Path) -> None:
    """A DLQ that discards rows still discards them."""
    trial = redirect_pipeline(make_pipeline(dlq=Dlq(window=10, threshold=2, destination=Discard())), tmp_path)
    assert trial.dlq == Dlq(window=0, destination=Discard())


def test_files_that_were_read_are_kept(tmp_path: Path) -> None:
    """This holds although the definition moves them."""
    origin = FilesRead(path="landing/*.json", format="json", schema="id long", after="move", move_to="done")
    trial = redirect_pipeline(make_pipeline(origin=origin), tmp_path)
    assert trial.origin == FilesRead(path="landing/*.json", format="json", schema="id long")


@dataclass(frozen=True, kw_only=True)
class Acknowledging(Memory):
    """An origin that forgets rows after they are committed."""

    def committed(self, spark: Any, batch: Batch) -> None:
        raise AssertionError("nobody tells it")


def test_an_origin_that_is_notified_of_commits_is_refused(tmp_path: Path) -> None:
    """It would forget rows that the trial has not delivered."""
    with pytest.raises(Refusal, match="must change nothing there"):
        redirect_pipeline(make_pipeline(origin=Acknowledging(schema="id long")), tmp_path)
