"""The log of changes and the keys: each change once, with its caller and its reason."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runners.model.errors import Refusal
from runners.service.deeds import Deeds
from runners.service.messages import Resumed, ResumePipeline
from runners.service.operation import Caller, Invalid, KeyTaken, NotKept, Operation, Right
from runners.service.operations import OPERATIONS
from tests.manual_clock import ManualClock
from tests.small_disk import SmallDisk

(RESUME,) = (each for each in OPERATIONS if each.name == "resume_pipeline")
ANNA, BERT = (Caller(name=name, right=Right.ADMIN) for name in ("anna", "bert"))
DONE = Resumed(pipeline="orders", resumed=True)


class Change:
    """A change that counts how often it is done."""

    def __init__(self, fails: BaseException | None = None) -> None:
        self.times = 0
        self.fails = fails

    def __call__(self) -> Resumed:
        self.times += 1
        if self.fails is not None:
            raise self.fails
        return DONE


def carry(
    deeds: Deeds,
    act: Callable[[], Resumed],
    key: str = "key",
    caller: Caller = ANNA,
    reason: str = "all is well",
    operation: Operation = RESUME,
) -> Any:
    """Carry out a change, and return its answer as JSON."""
    answer = deeds.carry_out(operation, caller, ResumePipeline(pipeline="orders", reason=reason), key, act)
    return json.loads(msgspec.json.encode(answer))


def read_log(deeds: Deeds) -> list[dict[str, Any]]:
    """Return the lines of the log."""
    return [json.loads(line) for line in deeds.log.read_text(encoding="utf-8").split("\n")[:-1]]


@pytest.fixture
def deeds(tmp_path: Path) -> Deeds:
    """The deeds of a new server."""
    return Deeds(tmp_path / "server", ManualClock())


def test_the_log_has_the_caller_the_change_and_the_reason(deeds: Deeds) -> None:
    """A line is there before the change is done, and another one after it."""
    before: list[dict[str, Any]] = []

    def act() -> Resumed:
        before.extend(read_log(deeds))
        return DONE

    carry(deeds, act)
    began, ended = read_log(deeds)
    assert before == [began]
    assert (began["who"], began["did"], began["with"]["reason"], began["key"]) == (
        "anna",
        "resume_pipeline",
        "all is well",
        "key",
    )
    assert began["at"] == "2026-01-01T00:00:00.000+00:00"
    assert (ended["who"], ended["key"], ended["done"]) == ("anna", "key", True)


@pytest.mark.parametrize(
    "reason",
    ["a\nb", '"}\n{"who": "bert"}', "a\r\x0b\x0c\x1c\x85b", "a\u2028b\u2029c", "\0\x1b[2J", "\U0001f600" * 250],
)
def test_a_line_of_the_log_stays_one_line_of_ascii(deeds: Deeds, reason: str) -> None:
    """No text of a caller looks like another line, for any program that splits lines."""
    carry(deeds, Change(), reason=reason)
    text = deeds.log.read_text(encoding="ascii")
    assert len(text.splitlines()) == text.count("\n") == 2
    assert read_log(deeds)[0]["with"]["reason"] == reason


@pytest.mark.parametrize("key", ["", " ", "a b", "é", "a\nb", "a\0", "k" * 201])
def test_a_change_needs_a_key(deeds: Deeds, key: str) -> None:
    """Without one nothing is done, and nothing is logged."""
    act = Change()
    with pytest.raises(Invalid, match="needs a key"):
        carry(deeds, act, key=key)
    assert (act.times, deeds.log.exists()) == (0, False)


def test_a_repeated_request_gets_the_first_answer(tmp_path: Path, deeds: Deeds) -> None:
    """It is done once, also by another server of the folder, such as the one after a restart."""
    act = Change()
    answers = [carry(each, act) for each in (deeds, deeds, Deeds(tmp_path / "server", ManualClock()))]
    assert answers == [{"pipeline": "orders", "resumed": True}] * 3
    assert (act.times, len(read_log(deeds))) == (1, 2)


def test_one_of_many_requests_at_once_is_done(tmp_path: Path) -> None:
    """The others get its answer, or learn that it has not ended. Two servers share the folder."""
    servers = [Deeds(tmp_path / "server", ManualClock()) for _ in range(2)]
    act, at_once, found = Change(), threading.Barrier(16), []

    def send(number: int) -> None:
        at_once.wait(10)
        try:
            found.append(carry(servers[number % 2], act))
        except KeyTaken:
            found.append("taken")

    threads = [threading.Thread(target=send, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert act.times == 1
    assert len(found) == 16
    assert [each for each in found if each not in ("taken", {"pipeline": "orders", "resumed": True})] == []


def test_a_key_belongs_to_one_request_of_one_caller(deeds: Deeds) -> None:
    """With another body or operation it is refused. The same key of another caller is another key."""
    act = Change()
    carry(deeds, act)
    (stop,) = (each for each in OPERATIONS if each.name == "stop_run")
    with pytest.raises(KeyTaken, match="another request"):
        carry(deeds, act, reason="another one")
    with pytest.raises(KeyTaken, match="another request"):
        carry(deeds, act, operation=stop)
    carry(deeds, act, caller=BERT)
    assert act.times == 2


def test_a_refused_change_frees_its_key(deeds: Deeds) -> None:
    """The log has the refusal. Another request may have the key."""
    with pytest.raises(Refusal):
        carry(deeds, Change(Refusal("not now", hint="later")))
    assert read_log(deeds)[-1]["refused"] == "not now"
    act = Change()
    carry(deeds, act, reason="another one")
    assert act.times == 1


def test_a_change_that_failed_in_an_unexpected_way_keeps_its_key(deeds: Deeds) -> None:
    """It may have changed something, so a retry is not done."""
    with pytest.raises(RuntimeError):
        carry(deeds, Change(RuntimeError("secret details")))
    assert read_log(deeds)[-1]["failed"] == "RuntimeError"
    assert "secret details" not in deeds.log.read_text()
    act = Change()
    with pytest.raises(KeyTaken, match="has not ended"):
        carry(deeds, act)
    assert act.times == 0


KILLED = """
import os, sys
from pathlib import Path
from tests.runners.service.test_deeds import carry
from runners.service.deeds import Deeds
from tests.manual_clock import ManualClock
carry(Deeds(Path(sys.argv[1]), ManualClock()), lambda: os._exit(9))
"""


def test_a_change_whose_server_was_killed_is_not_done_again(tmp_path: Path) -> None:
    """The log says that it began. Another key does it."""
    folder = tmp_path / "server"
    assert subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=False).returncode == 9
    deeds, act = Deeds(folder, ManualClock()), Change()
    assert [line["with"]["reason"] for line in read_log(deeds)] == ["all is well"]
    with pytest.raises(KeyTaken, match="its server ended"):
        carry(deeds, act)
    carry(deeds, act, key="new")
    assert act.times == 1


def test_a_full_disk_lets_nothing_change(small_disk: SmallDisk) -> None:
    """What is refused has no line, not even the beginning of one. Once there is space again, all works."""
    deeds, act = Deeds(small_disk.folder / "server", ManualClock()), Change()
    carry(deeds, act, key="first")
    small_disk.fill()
    with pytest.raises(NotKept, match="cannot log the change"):
        carry(deeds, act, reason="x" * 900)
    assert (act.times, len(read_log(deeds))) == (1, 2)
    small_disk.empty()
    carry(deeds, act)
    assert (act.times, len(read_log(deeds))) == (2, 4)


def test_a_disk_that_is_full_after_the_change_hides_no_change(
    small_disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller gets the answer, the log has the beginning, and the server says what it could not note."""
    deeds = Deeds(small_disk.folder / "server", ManualClock())

    def act() -> Resumed:
        small_disk.fill()
        return DONE

    assert carry(deeds, act) == {"pipeline": "orders", "resumed": True}
    assert read_log(deeds)[0]["with"]["reason"] == "all is well"
    assert "The end of a change of anna cannot be noted" in caplog.text
    with pytest.raises((KeyTaken, NotKept)):
        carry(deeds, Change())


def test_a_folder_that_cannot_be_written_is_refused(small_disk: SmallDisk) -> None:
    """The server does not begin."""
    small_disk.read_only()
    with pytest.raises(Refusal, match="cannot keep what callers change"):
        Deeds(small_disk.folder / "server", ManualClock())


def test_a_broken_file_of_keys_is_refused(tmp_path: Path) -> None:
    """The refusal says which file to remove."""
    (tmp_path / "keys.sqlite").write_text("no database" * 1_000)
    with pytest.raises(Refusal) as refused:
        Deeds(tmp_path, ManualClock())
    assert "keys.sqlite" in refused.value.hint
