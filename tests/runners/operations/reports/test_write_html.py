"""An index of the pages of many runs."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from runners.command_line import cli
from runners.state.run_history import RunHistory
from tests.runners.operations.reports.test_report_page import Seen
from tests.runners.state.test_run_history import ORDERS, begin_row, end_row


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Three pipelines and a broken definition. One pipeline never ran, and one keeps no history."""
    for name in ("orders", "prices"):
        (tmp_path / f"{name}.yaml").write_text(ORDERS.replace("orders", name))
    (tmp_path / "silent.yaml").write_text(f"{ORDERS.replace('orders', 'silent')}run: {{history: 0s}}\n")
    (tmp_path / "broken.yaml").write_text("name: [")
    history = RunHistory(tmp_path / ".wherry" / "orders" / "runs", timedelta(days=90))
    first, second = begin_row("a" * 32), begin_row("b" * 32, minutes=5)
    history.write([first, end_row(first), second, end_row(second, "failed")])
    return tmp_path


def test_an_index_links_to_every_run(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It shows how each pipeline's last runs ended. It names pipelines that never ran, keep no history, or are
    broken.
    """
    place = directory / "pages"
    assert cli.execute(["report", "--index", str(directory), "--to", str(place)]) == 0
    assert capsys.readouterr().out == f"{place / 'index.html'}\n"
    text = (place / "index.html").read_text()
    seen = Seen(text)
    links = [str(attrs["href"]) for tag, attrs in seen.tags if tag == "a"]
    pages = [link for link in links if not link.startswith("#")]
    assert pages == ["orders-bbbbbbbbbbbb.html", "orders-aaaaaaaaaaaa.html"]
    assert "it's <b>full</b>" in Seen((place / pages[0]).read_text()).text
    ids = {attrs["id"] for _, attrs in seen.tags if "id" in attrs}
    assert {link[1:] for link in links if link.startswith("#")} == ids
    plain = re.sub(r"<[^>]*>", " ", text)
    for said in ("1 of 2 failed", "no run yet", "silent keeps no run history", "broken.yaml is broken", "not YAML"):
        assert said in plain


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "There are 3 definitions in this folder: orders.yaml, prices.yaml, silent.yaml."),
        (["orders.yaml", "--index", "."], "Name a definition, or with --index a directory of them."),
        (["--index", "nowhere"], "There is no directory nowhere."),
        (["--index", ".", "--to", "orders.yaml/pages"], "orders.yaml/pages cannot be created"),
    ],
)
def test_an_invalid_report_command_is_refused(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """The exit code is 2."""
    monkeypatch.chdir(directory)
    assert cli.execute(["report", *words]) == 2
    assert said in capsys.readouterr().err
