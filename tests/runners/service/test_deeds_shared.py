"""Two servers share the log of changes and the keys: each change is done once, and each line of the log is whole."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

COUNT = 40
"""How many changes each process does."""
PROGRAM = """
import os, signal, sys
from pathlib import Path
from runners.model.clock import Clock
from runners.service.deeds import Deeds
from runners.service.messages import Resumed, ResumePipeline
from runners.service.operation import Caller, KeyTaken, Operation, Right

folder, who, keys, fatal = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(), sys.argv[4]

def resume_pipeline(*_):
    "Resume it."

operation = Operation(
    act=resume_pipeline, method="POST", path="/x", ask=ResumePipeline, answer=Resumed, right=Right.OPERATE
)
deeds = Deeds(folder / "server", Clock())
print("ready", flush=True)
sys.stdin.readline()
for key in keys:
    def act():
        with (folder / "done").open("a") as done:
            done.write(f"{key}\\n")
        if key == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return Resumed(pipeline="orders", resumed=True)

    ask = ResumePipeline(pipeline="orders", reason="a long reason " * 2_000)
    try:
        answer = deeds.carry_out(operation, Caller(name=who, right=Right.ADMIN), ask, key, act)
    except KeyTaken:
        print(key, "taken", flush=True)
    else:
        print(key, "done" if isinstance(answer, Resumed) else "known", flush=True)
"""


def start(folder: Path, who: str, keys: Sequence[str], fatal: str = "") -> subprocess.Popen[str]:
    """Start a server that waits until it may begin."""
    words = [sys.executable, "-c", PROGRAM, str(folder), who, " ".join(keys), fatal]
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    return server


def finish(servers: Sequence[subprocess.Popen[str]]) -> list[dict[str, str]]:
    """Let all servers begin at once. Return how each change ended, by server and key."""
    for server in servers:
        assert server.stdin is not None
        server.stdin.write("\n")
        server.stdin.flush()
    return [dict(line.split() for line in server.communicate(timeout=300)[0].splitlines()) for server in servers]


def read_done(folder: Path) -> Counter[str]:
    """Return how many times each change was done."""
    return Counter((folder / "done").read_text().split())


def read_log(folder: Path, fact: str) -> Counter[str]:
    """Return how many lines of the log have this fact, for each key. Each line is whole."""
    lines = map(json.loads, (folder / "server" / "audit.jsonl").read_text().splitlines())
    return Counter(line["key"] for line in lines if fact in line)


def test_changes_with_different_keys_are_all_done_and_logged(tmp_path: Path) -> None:
    """Each line of the log is whole, though both servers write lines that are longer than a block of a disk."""
    keys = [[f"{who}{number}" for number in range(COUNT)] for who in "ab"]
    ended = finish([start(tmp_path, "ann", each) for each in keys])
    assert [set(each.values()) for each in ended] == [{"done"}, {"done"}]
    assert read_done(tmp_path) == Counter([*keys[0], *keys[1]])
    assert read_log(tmp_path, "with") == read_log(tmp_path, "done") == read_done(tmp_path)


def test_a_change_with_the_same_key_is_done_by_one_of_two_servers(tmp_path: Path) -> None:
    """The other one gets the first answer, or learns that the first request has not ended."""
    keys = [str(number) for number in range(COUNT)]
    first, second = finish([start(tmp_path, "ann", keys) for _ in range(2)])
    assert first.keys() == second.keys() == set(keys)
    assert [sorted([first[key], second[key]]).count("done") for key in keys] == [1] * COUNT
    assert read_done(tmp_path) == read_log(tmp_path, "with") == read_log(tmp_path, "done") == Counter(keys)


def test_callers_with_the_same_key_do_not_share_it(tmp_path: Path) -> None:
    """A key belongs to its caller."""
    keys = [str(number) for number in range(COUNT)]
    ended = finish([start(tmp_path, who, keys) for who in ("ann", "bob")])
    assert [set(each.values()) for each in ended] == [{"done"}, {"done"}]
    assert read_done(tmp_path) == Counter(keys * 2)


@pytest.mark.parametrize("beside", [True, False])
def test_a_change_whose_server_was_killed_is_not_repeated(tmp_path: Path, beside: bool) -> None:
    """Another server does not know how it ended, and answers that. The log has that it began, and no end of it."""
    keys = [str(number) for number in range(COUNT)]
    killed = start(tmp_path, "ann", keys, fatal="20")
    finish([killed, *([start(tmp_path, "ann", [*keys[21:], *keys[:20]])] if beside else [])])
    (later,) = finish([start(tmp_path, "ann", keys)])
    assert killed.returncode == -signal.SIGKILL
    assert later["20"] == "taken"
    assert read_done(tmp_path) == read_log(tmp_path, "with") == Counter(keys)
    assert read_log(tmp_path, "done") == Counter(keys) - Counter(["20"])
