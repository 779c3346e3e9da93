"""Which callers may come in: tokens, how often a caller asks, and from which web sites."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.service.access.guard import BURST, RATE, Guard
from runners.service.access.tokens import Tokens
from runners.service.operation import Caller, Forbidden, Right, TooMuch, Unauthenticated
from tests.manual_clock import ManualClock


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    """A guard of a server that is reached as lake.example too."""
    clock = ManualClock()
    return Guard(tokens=Tokens(file=tmp_path / "tokens.json", clock=clock), clock=clock, hosts=["Lake.Example"])


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:8400", None),
        ("127.0.0.1:8400", "http://127.0.0.1:8400"),
        ("[::1]:8400", "http://[::1]:8400"),
        ("LOCALHOST:8400", "http://localhost:8400"),
        ("lake.example", "https://lake.example"),
        ("LAKE.example:444", "https://lake.EXAMPLE:444"),
    ],
)
def test_the_own_page_and_programs_come_in(guard: Guard, host: str, origin: str | None) -> None:
    """A program sends no origin."""
    guard.check_source(host, origin)


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example:8400", "127.0.0.1.evil.example", "[::1", "evil@[::2]"],
)
def test_a_name_that_a_web_site_points_to_this_machine_does_not_come_in(guard: Guard, host: str) -> None:
    """The browser sends the name of that web site as the host."""
    with pytest.raises(Forbidden, match="for this host"):
        guard.check_source(host, f"http://{host}")


@pytest.mark.parametrize(
    "origin",
    ["null", "", "http://evil.example", "http://localhost:1", "http://localhost", "http://[", "http://localhost:x"],
)
def test_a_page_of_another_web_site_does_not_come_in(guard: Guard, origin: str) -> None:
    """A page of another port is of another web site. A page in a sandbox or a file has the origin null."""
    with pytest.raises(Forbidden, match="other web sites"):
        guard.check_source("localhost:8400", origin)


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic dXNlcjpwYXNz", "wherry_x", "Bearer wherry_x"])
def test_a_caller_without_a_known_token_does_not_come_in(guard: Guard, header: str) -> None:
    """A name and a password are none."""
    with pytest.raises(Unauthenticated):
        guard.admit(header)


def test_a_caller_asks_as_often_as_the_rate_says(guard: Guard) -> None:
    """After a burst, each second allows some more. Another caller is not concerned."""
    anna, bert = (f"bearer  {guard.tokens.add(name, 'read')}" for name in ("anna", "bert"))
    for _ in range(int(BURST)):
        guard.admit(anna)
    with pytest.raises(TooMuch):
        guard.admit(anna)
    assert guard.admit(bert).name == "bert"
    guard.clock.wait(1.0)
    for _ in range(int(RATE)):
        guard.admit(anna)
    with pytest.raises(TooMuch):
        guard.admit(anna)


def test_a_refused_question_does_not_make_the_wait_longer(guard: Guard) -> None:
    """Asking on and on does not make a caller wait longer."""
    token = f"Bearer {guard.tokens.add('anna', 'read')}"
    for _ in range(int(BURST)):
        guard.admit(token)
    for _ in range(3 * int(BURST)):
        with pytest.raises(TooMuch):
            guard.admit(token)
    guard.clock.wait(1.0)
    assert guard.admit(token).name == "anna"


def test_what_is_about_all_pipelines_needs_a_token_for_all(guard: Guard) -> None:
    """A caller without a pipeline may see none."""
    guard.check_sees_all(Caller(name="anna", right=Right.READ))
    for seen in (frozenset({"orders"}), frozenset[str]()):
        with pytest.raises(Forbidden, match="only some pipelines"):
            guard.check_sees_all(Caller(name="anna", right=Right.ADMIN, pipelines=seen))
