"""The location of a state."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from destinations.discard import Discard
from runners.model.spec import PipelineSpec, SchemaState
from runners.state.location import StateLocation
from runners.state.prepared_store import VolumeStore


def make_and_find_mode(directory: Path) -> int:
    """Return the mode of a state's directory after a run has made it."""
    StateLocation(directory=directory, schema="", name="orders").make()
    return directory.stat().st_mode & 0o7777


def test_only_its_owner_can_read_a_new_state(tmp_path: Path) -> None:
    """It contains rows."""
    before = os.umask(0)
    try:
        assert make_and_find_mode(tmp_path / ".wherry" / "orders") == 0o700
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("mode", "warned"), [(0o770, False), (0o2770, False), (0o750, False), (0o755, True), (0o701, True)]
)
def test_an_existing_state_keeps_its_mode(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
) -> None:
    """A group may share it. Wherry warns if every user of the machine can read it."""
    tmp_path.chmod(mode)
    assert make_and_find_mode(tmp_path) == mode
    said = [
        f"Every user of this machine can read the state, and it holds rows. To prevent that:  chmod o-rwx {tmp_path}"
    ]
    assert caplog.messages == (said if warned else [])


@pytest.mark.parametrize(
    ("volume", "expected"),
    [("main.wherry.rows", "/Volumes/main/wherry/rows"), ("`main`.wherry.`my rows`", "/Volumes/main/wherry/my rows")],
)
def test_rows_wait_in_a_folder_of_the_volume(volume: str, expected: str) -> None:
    """Each pipeline has its own folder."""
    pipeline = PipelineSpec(
        name="orders", destinations=[Discard()], state=SchemaState(schema="main.wherry", volume=volume)
    )
    store = StateLocation.of(pipeline).store()
    assert isinstance(store, VolumeStore)
    assert str(store.root) == f"{expected}/orders/prepared"


def test_runs_that_begin_at_the_same_moment_see_that_the_state_can_be_written(tmp_path: Path) -> None:
    """Each one writes a probe and removes it. The other one may have removed it before."""
    place = StateLocation(directory=tmp_path / "state", schema="", name="orders")
    with ThreadPoolExecutor(4) as pool:
        for made in [pool.submit(place.make) for _ in range(2_000)]:
            made.result()
    assert list((tmp_path / "state").iterdir()) == []
