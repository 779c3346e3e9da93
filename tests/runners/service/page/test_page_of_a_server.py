"""The page of a real server, whose pipelines ran without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from runners.pipeline import Pipeline
from runners.service.client import Client
from runners.service.serving import Server, ServerOptions
from tests.browser import Page, open_browser

ORDERS = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, email string"}
destinations:
  - delta: {path: tables/orders}
run: {batch: {files: 1}, runners: 1}
schedule: {cron: "30 2 * * *", time_zone: Europe/Berlin}
"""
DAILY = """
name: daily
origin:
  delta: {path: tables/orders}
destinations:
  - delta: {path: tables/daily}
"""


@pytest.fixture(scope="module")
def screen() -> Iterator[Page]:
    """A browser for all tests of the module."""
    with open_browser() as page:
        yield page


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two pipelines and a broken file. The first pipeline ran, and the second reads its table."""
    (tmp_path / "landing").mkdir()
    for number in range(3):
        rows = [{"id": 2 * number + each, "email": "a@x.com"} for each in range(2)]
        (tmp_path / "landing" / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "orders.yaml").write_text(ORDERS)
    assert Pipeline.load(tmp_path / "orders.yaml").run().delivered == {"orders": 6}
    (tmp_path / "daily.yaml").write_text(DAILY)
    (tmp_path / "broken.yaml").write_text("name: broken\norigin: {fils: {}}\n")
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Server:
    """The server of the folder."""
    return Server.open(ServerOptions(directory=folder, port=0))


@pytest.fixture
def address(server: Server) -> Iterator[str]:
    """Where the server answers."""
    with server.listen() as address:
        yield address


@pytest.fixture
def page(screen: Page, server: Server, address: str) -> Page:
    """The page of the server, for its owner."""
    show(screen, address, server.own_token)
    return screen


def show(screen: Page, address: str, token: str) -> None:
    """Open the page of a server, and wait until its pipelines are there."""
    screen.open("about:blank")
    screen.open(f"{address}/#token={token}")
    screen.wait_for("document.querySelector('#list')")


def go(page: Page, view: str, until: str) -> None:
    """Go to a view, and wait until it has a text."""
    page.value(f"location.hash = '#/{view}'")
    page.wait_for(f"document.querySelector('main').innerText.includes({until!r})")


def press(page: Page, text: str) -> None:
    """Press the button with this text, in the open dialog if there is one."""
    place = "(document.querySelector('dialog[open]') || document.querySelector('main'))"
    find = f"[...{place}.querySelectorAll('button')].find((each) => each.textContent === {text!r})"
    page.wait_for(f"{find} !== undefined")
    page.value(f"{find}.click()")


def finish(page: Page, reason: str, verb: str, said: str) -> None:
    """Give a reason, do the change, and wait until the dialog says that it was done."""
    page.value("document.querySelector('dialog [name=reason]').focus()")
    page.type(reason)
    press(page, verb)
    page.wait_for(f"document.querySelector('dialog .done')?.innerText.includes({said!r})")
    press(page, "Close")
    page.wait_for("!document.querySelector('dialog')")


def test_the_page_shows_the_folder(page: Page) -> None:
    """The broken file is first. The flow and the run have the counts of the run."""
    said = page.value("document.querySelector('.needs').innerText")
    assert "broken.yaml" in said
    assert page.value("[...document.querySelectorAll('#list .name')].map((each) => each.innerText)") == [
        "daily",
        "orders",
    ]
    go(page, "p/orders", "All counts balance")
    page.wait_for("document.querySelector('.flow svg')")
    facts = page.value("[...document.querySelectorAll('.flow .fact')].map((each) => each.textContent)")
    assert facts == ["6 read", "6 delivered"]
    page.value("[...document.querySelectorAll('main a')].find((each) => each.innerText === 'the last run').click()")
    page.wait_for("document.querySelector('main').innerText.includes('nothing left to do')")
    page.wait_for("document.querySelectorAll('.timeline .track').length === 1")
    go(page, "map", "An arrow goes")
    assert len(page.value("[...document.querySelectorAll('.map .map-node')].map((each) => each.textContent)")) == 2


def test_a_person_holds_the_schedule_and_moves_the_offsets(page: Page, folder: Path) -> None:
    """The log of the server has the reasons. The pages show at once what was changed."""
    go(page, "p/orders", "Hold the schedule")
    press(page, "Hold the schedule")
    finish(page, "the supplier repairs files", "Hold the schedule", "begins no more runs")
    go(page, "", "No run begins by itself: the supplier repairs files")
    go(page, "p/orders/offsets", "Move the offsets")
    press(page, "Move the offsets")
    press(page, "Preview")
    page.wait_for("document.querySelector('dialog .preview')?.innerText.includes('orders gets the rows again')")
    finish(page, "read the last file again", "Move the offsets", "The offsets were moved.")
    lane = Pipeline.load(folder / "orders.yaml").offsets.read().json()["lanes"]["0"]
    assert lane["offset"]["file"] == "1.json"
    log = (folder / ".wherry" / "server" / "audit.jsonl").read_text().splitlines()
    deeds = [(deed["did"], deed["with"]["reason"]) for deed in map(json.loads, log) if "with" in deed]
    assert ("hold_schedule", "the supplier repairs files") in deeds
    assert deeds[-1] == ("move_offsets", "read the last file again")


def test_a_backfill_is_previewed_before_it_is_offered(page: Page) -> None:
    """The destination has all batches, so the server refuses. It says what to do, and then how many rows come again."""
    go(page, "p/orders", "Backfill")
    press(page, "Backfill")
    press(page, "Preview")
    page.wait_for("document.querySelector('dialog .problem')?.innerText.includes('got all of this range already')")
    shown = "[...document.querySelectorAll('dialog button')].find((each) => each.textContent === 'Backfill').hidden"
    assert page.value(shown) is True
    page.value("document.querySelector('dialog [name=again]').click()")
    press(page, "Preview")
    page.wait_for("document.querySelector('dialog .preview')")
    cells = page.value("[...document.querySelectorAll('dialog .preview td')].map((each) => each.textContent)")
    assert cells[-2:] == ["3", "6"]
    assert page.value(shown) is False


def test_a_person_approves_what_an_agent_planned(page: Page, server: Server, address: str) -> None:
    """The agent carries it out once, in both names, and the page says so."""
    agent = Client(address, server.guard.tokens.add("claude", "read"))
    wanted = {"pipeline": "orders", "reason": "wrong prices", "held": True}
    plan = agent.plan_change(operation="hold_schedule", arguments=wanted).plan
    go(page, "", "claude plans: Hold the schedule.")
    go(page, "plans", "wrong prices")
    press(page, "Approve")
    press(page, "Approve this change")
    page.wait_for("document.querySelector('dialog .done')?.innerText.includes('Approved.')")
    press(page, "Close")
    assert agent.get_plan(plan=plan).approved_by == "owner"
    assert agent.carry_out_plan(plan=plan).answer == {"pipeline": "orders", "held": True}
    page.wait_for("document.querySelector('.plan .state').innerText.includes('carried out')")
    log = [json.loads(line) for line in server.service.deeds.log.read_text().splitlines()]
    (deed,) = [each for each in log if each["did"] == "hold_schedule" and "with" in each]
    assert (deed["who"], deed["with"]["reason"]) == ("claude, approved by owner", "wrong prices")


def test_a_reader_sees_which_right_is_missing(screen: Page, server: Server, address: str) -> None:
    """The buttons that only read are there as before."""
    show(screen, address, server.guard.tokens.add("grafana", "read"))
    go(screen, "p/orders", "grafana has the right to read.")
    screen.wait_for("document.querySelector('main .tabs')")
    dimmed = "[...document.querySelectorAll('main button[aria-disabled]')].map((each) => each.textContent)"
    assert screen.value(dimmed) == ["Start a run", "Hold the schedule", "Repair", "Backfill", "Redo a file"]
    press(screen, "Backfill")
    screen.wait_for("document.querySelector('dialog')?.innerText.includes('This needs the right to admin')")


def test_a_problem_of_the_server_is_shown(page: Page) -> None:
    """Limits can be changed only while a run works."""
    go(page, "p/orders/offsets", "Change the limits")
    press(page, "Change the limits")
    page.value("document.querySelector('dialog [name=threshold]').value = '7'")
    page.value("document.querySelector('dialog [name=reason]').value = 'a test'")
    press(page, "Change the limits")
    page.wait_for("document.querySelector('dialog .problem')?.innerText.includes('run')")
