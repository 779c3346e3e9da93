"""Tokens: what each caller may ask, and how a token ends."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from runners.model.errors import Refusal
from runners.service.access.tokens import RightName, Tokens, make_own_token
from runners.service.operation import Right, Unauthenticated
from tests.manual_clock import ManualClock


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    """The tokens of a server that has none yet."""
    return Tokens(file=tmp_path / "server" / "tokens.json", clock=ManualClock(), own=make_own_token())


@pytest.mark.parametrize(("right", "meant"), [("read", Right.READ), ("operate", Right.OPERATE), ("admin", Right.ADMIN)])
def test_a_token_gives_its_right_and_its_pipelines(tokens: Tokens, right: RightName, meant: Right) -> None:
    """Without pipelines it is for all of them."""
    some = tokens.recognise(tokens.add("anna", right, pipelines=["orders"]))
    every = tokens.recognise(tokens.add("bert", right))
    assert (some.name, some.right, some.pipelines) == ("anna", meant, frozenset({"orders"}))
    assert (every.right, every.pipelines) == (meant, None)


def test_the_own_token_has_every_right_and_is_in_no_file(tokens: Tokens) -> None:
    """A server of the same folder with another own token does not know it."""
    tokens.add("anna", "read")
    assert tokens.recognise(tokens.own).right is Right.ADMIN
    assert tokens.own not in tokens.file.read_text()
    with pytest.raises(Unauthenticated):
        Tokens(file=tokens.file, clock=ManualClock(), own=make_own_token()).recognise(tokens.own)


def test_the_file_has_hashes_that_only_its_owner_reads(tokens: Tokens) -> None:
    """A file with wider rights that a crash left behind does not widen them. The folder is closed too."""
    token = tokens.add("anna", "admin")
    left = tokens.file.with_name(f".{tokens.file.name}.{os.getpid()}")
    left.write_text("")
    left.chmod(0o666)
    tokens.add("bert", "read")
    assert token not in tokens.file.read_text()
    assert stat.S_IMODE(tokens.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(tokens.file.parent.stat().st_mode) == 0o700


def test_a_removed_token_counts_no_more(tokens: Tokens) -> None:
    """The next question finds out, without a restart."""
    token = tokens.add("anna", "read")
    assert tokens.remove("anna")
    assert not tokens.remove("anna")
    with pytest.raises(Unauthenticated, match="not known"):
        tokens.recognise(token)


def test_a_new_token_replaces_the_one_of_the_same_name(tokens: Tokens) -> None:
    """There is one token for a name."""
    old, new = tokens.add("anna", "admin"), tokens.add("anna", "read")
    assert tokens.recognise(new).right is Right.READ
    with pytest.raises(Unauthenticated):
        tokens.recognise(old)


def test_a_token_ends_at_its_moment(tmp_path: Path) -> None:
    """It counts until then, and not at that moment."""
    clock = ManualClock()
    tokens = Tokens(file=tmp_path / "tokens.json", clock=clock)
    token = tokens.add("anna", "read", lasts=60)
    clock.move(59.9)
    assert tokens.recognise(token).name == "anna"
    clock.move(0.1)
    with pytest.raises(Unauthenticated, match="expired"):
        tokens.recognise(token)


@pytest.mark.parametrize("token", ["", "wherry_", "\ud800", "x" * 100_000, "\0"])
def test_a_text_that_is_no_token_opens_nothing(tokens: Tokens, token: str) -> None:
    """This holds without an own token too."""
    tokens.add("anna", "admin")
    for each in (tokens, Tokens(file=tokens.file, clock=ManualClock())):
        with pytest.raises(Unauthenticated):
            each.recognise(token)


@pytest.mark.parametrize("name", ["owner", "webhook", "", "  ", "a\nb", "a\u2028b", "a\x1b[2Jb", "n" * 101])
def test_a_name_that_a_log_cannot_tell_apart_is_refused(tokens: Tokens, name: str) -> None:
    """The log of changes has the name owner for the owner of the server, and webhook for senders of webhooks."""
    with pytest.raises(Refusal, match="No token can have the name"):
        tokens.add(name, "read")
    assert not tokens.file.exists()


GOOD = {"name": "anna", "hash": "0" * 64, "right": "read"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[[]]",
        json.dumps([{**GOOD, "right": "root"}]),
        json.dumps([{**GOOD, "hash": "é"}]),
        json.dumps([{**GOOD, "expires": "2026-01-01T00:00:00"}]),
        json.dumps([{**GOOD, "pipelines": "orders"}]),
    ],
)
def test_a_broken_file_opens_nothing(tokens: Tokens, text: str) -> None:
    """The refusal names the file. The own token still counts."""
    tokens.file.parent.mkdir()
    tokens.file.write_text(text)
    with pytest.raises(Refusal, match="cannot be read"):
        tokens.recognise("wherry_x")
    assert tokens.recognise(tokens.own).right is Right.ADMIN


def test_a_file_with_good_values_is_read(tokens: Tokens) -> None:
    """Only what the test above changes is wrong."""
    tokens.file.parent.mkdir()
    entries: list[Any] = [{**GOOD, "expires": "2026-01-01T00:00:00Z"}]
    tokens.file.write_text(json.dumps(entries))
    assert [each.name for each in tokens.list_all()] == ["anna"]


@pytest.mark.parametrize("name", ["webhook", "provider:anna", "agent, approved by anna"])
def test_no_token_has_the_name_of_another_caller(tokens: Tokens, name: str) -> None:
    """The log would not tell them apart."""
    with pytest.raises(Refusal, match="No token can have the name"):
        tokens.add(name, "read")
