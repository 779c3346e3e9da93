"""The page of a server in a real browser, with prepared answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runners.model.errors import Refusal
from runners.service.operation import Right
from runners.service.problems import describe_problem
from tests.browser import Page, open_browser
from tests.runners.service.page.prepared import (
    AUDIT,
    ERROR,
    FINDINGS,
    PLANS,
    PREVIEWS,
    REFUSED,
    REPORT,
    ROW,
    RUN,
    TWO_ORIGINS,
    PreparedService,
    make_batches,
    make_entry,
    make_last_run,
    make_plan,
    make_run,
    serve,
)

HOSTILE = '<img src=x onerror="window.hurt=1"><script>window.hurt=1</script>'
VIEWS = {
    "pipelines": "",
    "schedule": "schedule",
    "map": "map",
    "tasks": "tasks",
    "task": f"tasks/{77:032x}",
    "plans": "plans",
    "search": "search/amount",
    "flow": "p/orders",
    "failed": "p/payments",
    "runs": "p/orders/runs",
    "run": f"p/orders/runs/{RUN}",
    "causes": "p/orders/refused",
    "cause": "p/orders/refused/CAST/cast",
    "row": f"p/orders/row/{ROW.replace('/', '%2F')}",
    "quality": "p/orders/quality",
    "offsets": "p/orders/offsets",
}
TEXT = "document.querySelector('main').innerText"
DONE = "document.querySelector('dialog .done')?.innerText"


@dataclass
class Site:
    """A page of the browser on a server."""

    page: Page
    address: str
    service: PreparedService

    def show(self, view: str = "", **given: Any) -> None:
        """Open a view with a fresh page, and wait until it is there."""
        self.page.open("about:blank")
        self.page.open(self.address, **given)
        self.page.wait_for("document.querySelector('#list') && !location.hash.includes('token')")
        if view:
            self.go(view)

    def go(self, view: str) -> None:
        """Go to a view of the page that is open."""
        self.page.value(f"location.hash = '#/{view}'")
        self.page.wait_for("!document.querySelector('main[aria-busy]') && !document.querySelector('#list')")

    def press(self, text: str) -> None:
        """Press the first button with this text, in the open dialog if there is one."""
        place = "(document.querySelector('dialog[open]') || document.querySelector('main'))"
        find = f"[...{place}.querySelectorAll('button')].find((each) => each.textContent === {text!r})"
        self.page.wait_for(f"{find} !== undefined")
        self.page.value(f"{find}.click()")

    def give_reason(self, reason: str) -> None:
        """Type a reason into the open dialog."""
        self.page.value("document.querySelector('dialog [name=reason]').focus()")
        self.page.type(reason)

    def list_texts(self, which: str, what: str = "textContent") -> list[str]:
        """Return the texts of these elements."""
        found: list[str] = self.page.value(f"[...document.querySelectorAll({which!r})].map((each) => each.{what})")
        return found

    def read(self) -> str:
        """Return the text of the view."""
        return str(self.page.value(TEXT))

    def save_picture(self, name: str) -> None:
        """Save a picture in the folder that WHERRY_PICTURES names, if it is set."""
        if os.environ.get("WHERRY_PICTURES"):
            self.page.take_picture(Path(os.environ["WHERRY_PICTURES"]) / f"{name}.png")


@pytest.fixture(scope="module")
def screen() -> Iterator[Page]:
    """A browser for all tests of the module."""
    with open_browser() as page:
        yield page


@pytest.fixture
def service() -> PreparedService:
    """The service behind the page."""
    return PreparedService(broken={"invoices.yaml": "line 4: there is no kind cas"})


@pytest.fixture
def site(screen: Page, service: PreparedService, tmp_path: Path) -> Iterator[Site]:
    """The page of a server with the prepared service."""
    with serve(service, tmp_path) as address:
        yield Site(page=screen, address=address, service=service)


def test_what_needs_a_person_comes_first_with_what_to_do(site: Site) -> None:
    """Plans, the broken file, failed, killed and paused pipelines, the held schedule, and then waiting refused rows."""
    site.show()
    states = site.list_texts(".need .state", "lastChild.textContent")
    waits = ["waits for approval"] * 3
    assert states == [*waits, "cannot be used", "failed", "killed", "paused", "schedule held", "refused rows"]
    assert len(site.list_texts(".need .todo")) == len(states)
    assert ERROR["hint"] in site.read()
    assert "no space is left on the device" in site.read()
    below = "document.querySelector('.needs').getBoundingClientRect().bottom"
    assert site.page.value(f"{below} <= document.querySelector('#list').getBoundingClientRect().top")
    assert site.page.value("document.title") == "9 need you · Wherry"


def test_each_pipeline_shows_its_state_and_what_waits(site: Site) -> None:
    """The line has the waiting files, the refused rows, the last run and the next."""
    site.show()
    line = site.page.value(
        "[...document.querySelectorAll('#list tr')].find((each) => each.innerText.includes('orders')).innerText"
    )
    for fact in ("idle", "3 files", "151", "20,000"):
        assert fact in line
    assert site.page.value("document.querySelector('#list time').title.endsWith(' UTC')")


def test_a_filter_shows_only_some_pipelines(site: Site) -> None:
    """A person types a part of the name, or presses a state."""
    site.show()
    site.page.value("document.querySelector('#filter').focus()")
    site.page.type("tick")
    names = "[...document.querySelectorAll('#list tbody .name')].map((each) => each.innerText)"
    assert site.page.value(names) == ["tickets"]
    site.page.value("document.querySelector('#filter').select()")
    site.page.type("a")
    site.page.value("document.querySelector('.chip.bad').click()")
    assert site.page.value(names) == ["payments"]
    assert site.page.value("document.querySelector('.chip.bad').ariaPressed") == "true"


def test_the_flow_has_the_counts_of_the_run_on_its_arrows(site: Site) -> None:
    """The rows that were read, filtered, refused at each stage, and delivered to each destination."""
    site.show("p/orders")
    site.page.wait_for("document.querySelector('.flow svg')")
    site.save_picture("flow")
    counts = site.list_texts(".flow .count")
    assert sorted(counts) == sorted(["14", "83", "54", "19,986", "19,903", "19,849", "19,555", "19,555", "1,204"])
    facts = site.list_texts(".flow .fact")
    assert facts == ["20,000 read", "294 filtered", "19,555 delivered", "18,351 filtered", "1,204 delivered"]
    assert "151 refused rows in this run" in site.page.value("document.querySelector('.flow .dlq').textContent")


def test_the_flow_of_several_origins_joins_them(site: Site) -> None:
    """Each origin has its own stages. An arrow has no number if its rows were not counted."""
    site.service.definition = TWO_ORIGINS
    site.show("p/orders")
    site.page.wait_for("document.querySelector('.flow svg')")
    names = site.list_texts(".flow .node .name")
    assert names == ["shop", "cast", "till", "rename", "require", "orders", "DLQ"]
    assert site.page.value("document.querySelectorAll('.flow .edge:not(.refusal)').length") == 5
    assert (
        site.page.value(
            "[...document.querySelectorAll('.flow .count')].filter((each) => each.textContent === '19,903').length"
        )
        == 1
    )


def test_the_flow_follows_a_run_live(site: Site) -> None:
    """Its numbers are those of the batches that were settled since, and those of the run before are gone."""
    site.show("p/stock")
    pass_on = site.service.happenings.of("stock", {})
    for event in make_batches(3):
        pass_on(event)
    site.page.wait_for(f"{TEXT}.includes('3 batches, 3,000 rows read, 9 refused')")
    facts = site.list_texts(".flow .fact")
    assert facts == ["3,000 read", "2,850 delivered", "60 delivered"]


def test_a_run_is_shown_with_its_timeline(site: Site) -> None:
    """Each lane has a line, and each phase a colour and a name."""
    site.show(VIEWS["run"])
    site.page.wait_for("document.querySelector('.timeline svg')")
    assert site.list_texts(".timeline .lane") == [
        "0",
        "1",
        "2",
        "3",
    ]
    assert site.page.value("document.querySelectorAll('.timeline .phase').length") == 4 * 5 * 5
    assert "reading 25.9 s" in site.read()


def test_a_failed_run_says_why_and_what_to_do(site: Site) -> None:
    """The error of the run is first."""
    site.show(f"p/orders/runs/{3:032x}")
    assert (
        site.page.value("document.querySelector('main h2 + .need').innerText").splitlines()[0]
        == ERROR["message"].splitlines()[0]
    )
    assert ERROR["hint"] in site.read()


ROWS = "document.querySelectorAll('tbody tr').length"
LAST = "document.querySelector('tbody tr:last-child .id').hash"


def test_older_runs_come_on_demand(site: Site) -> None:
    """The first 50 of 10,000 are shown, 200 more each time a person asks, and only some of them."""
    site.service.runs = [make_run(number) for number in range(10_000)]
    site.show("p/orders/runs")
    assert site.page.value(ROWS) == 50
    site.press("Older runs")
    site.page.wait_for(f"{ROWS} === 250")
    site.press("Older runs")
    site.page.wait_for(f"{ROWS} === 450")
    assert site.page.value(LAST) == f"#/p/orders/runs/{449:032x}"
    site.save_picture("runs")
    site.page.value("document.querySelector('#status').value = 'failed'")
    site.page.value("document.querySelector('#status').dispatchEvent(new Event('change'))")
    site.page.wait_for(f"{ROWS} === 1")


def test_the_oldest_run_is_reached_by_keyboard(site: Site) -> None:
    """The focus stays on the button, and at the end on the text in its place, which says how many runs there are."""
    site.service.runs = [make_run(number) for number in range(260)]
    site.show("p/orders/runs")
    older = "[...document.querySelectorAll('main button')].find((each) => each.textContent === 'Older runs')"
    site.page.value(f"{older}.focus()")
    site.page.key("Enter", 13, "\r")
    site.page.wait_for(f"{ROWS} === 250")
    assert site.page.value("document.activeElement.textContent") == "Older runs"
    site.page.key("Enter", 13, "\r")
    site.page.wait_for(f"{ROWS} === 260")
    assert site.page.value(f"{older} === undefined")
    assert site.page.value("document.activeElement.textContent").startswith("All 260 runs are shown")


def test_a_new_run_joins_the_older_runs(site: Site) -> None:
    """No run is lost or doubled."""
    site.service.runs = [make_run(number) for number in range(1, 400)]
    site.show("p/orders/runs")
    site.press("Older runs")
    site.page.wait_for(f"{ROWS} === 250")
    site.service.runs.insert(0, make_run(0))
    site.page.wait_for(f"{ROWS} === 251")
    site.press("Older runs")
    site.page.wait_for(f"{ROWS} === 400")
    assert len({*site.list_texts("tbody .id", "hash")}) == 400


def test_a_row_is_shown_before_and_after_each_stage(site: Site) -> None:
    """The try says what would become of the row now, and marks what each stage changed."""
    site.show(VIEWS["row"])
    site.press("Try it now")
    site.page.wait_for(f"{TEXT}.includes('It passes now: orders would get it')")
    site.save_picture("row")
    head = site.list_texts(".today th")
    assert head == ["Column", "As it was read", "After cast", "After with_columns"]
    changed = site.list_texts(".today .changed")
    assert changed == ['"bjorn@example.fr"', "12.5"]


def test_only_rows_with_a_text_are_replayed(site: Site) -> None:
    """The filter is part of what the server gets."""
    site.show(VIEWS["cause"])
    site.page.value("document.querySelector('#contains').focus()")
    site.page.type("12,50")
    site.page.key("Enter", 13, "\r")
    site.page.wait_for("document.querySelector('main button[aria-label*=\"12,50\"]')")
    site.press("Replay")
    site.give_reason("a test")
    site.press("Replay 83 rows")
    site.page.wait_for(DONE)
    assert site.service.changes[-1][1]["contains"] == "12,50"


def test_words_are_searched_for_by_keyboard(site: Site) -> None:
    """The view says what may be missing, links to what was found, and shows more on demand."""
    site.show("search")
    site.page.value("document.querySelector('#words').focus()")
    site.page.type("amount")
    site.page.key("Enter", 13, "\r")
    site.page.wait_for("document.querySelector('main tbody tr')")
    assert "The index is behind since" in site.read()
    assert site.list_texts("tbody td:first-child") == [f"run {RUN[:8]}"]
    site.press("Show more")
    site.page.wait_for("document.querySelectorAll('main tbody tr').length === 2")
    links = site.list_texts("tbody td:first-child a", "hash")
    assert links == [f"#/p/orders/runs/{RUN}", f"#/{VIEWS['row']}"]
    site.page.value("document.querySelector('#words').value = 'nowhere'")
    site.press("Search")
    site.page.wait_for(f"{TEXT}.includes('Nothing has all of these words.')")


def test_a_view_that_cannot_be_read_says_why(site: Site) -> None:
    """The other views of the pipeline stay in reach."""
    site.service.unreadable = Refusal("orders keeps no run history.", hint="Set run.history.")
    site.show("p/orders/runs")
    assert "orders keeps no run history." in site.read()
    assert site.list_texts(".tabs a")[0] == "Flow"


def test_quality_shows_each_rule_from_run_to_run(site: Site) -> None:
    """The worst rule is first."""
    site.show("p/orders/quality")
    site.page.wait_for("document.querySelectorAll('.trend svg').length === 2")
    assert site.page.value("[...document.querySelectorAll('.rule h3')].map((each) => each.innerText)")[0].startswith(
        "positive_amount"
    )
    assert site.page.value("document.querySelector('.trend svg').getAttribute('aria-label')").endswith(
        "94.0%, 99.9%, 99.7%"
    )


def test_the_calendar_shows_when_clocks_change(site: Site) -> None:
    """A run at 02:30 in Berlin is at 00:30 in UTC on the day before, and then at 01:30."""
    site.page.ask("Emulation.setTimezoneOverride", timezoneId="UTC")
    try:
        site.show("schedule")
        site.save_picture("schedule")
        cells = site.page.value("[...document.querySelectorAll('tbody td')].map((each) => each.innerText.trim())")
        assert cells[2].split("\n")[0].startswith("00:30")
        assert cells[3].startswith("01:30")
        assert "clocks changed" in cells[3]
        assert all("clocks changed" not in cell for cell in cells[4:])
        assert cells[9].startswith("24 runs")
        assert "from UTC+02:00 to UTC+01:00" in site.read()
    finally:
        site.page.ask("Emulation.setTimezoneOverride", timezoneId="")


def test_the_map_has_an_arrow_from_each_table_to_its_reader(site: Site) -> None:
    """A pipeline without a neighbour is listed below the map."""
    site.show("map")
    arrows = site.list_texts(".map path title")
    assert sorted(arrows) == [
        "daily feeds report through tables/daily",
        "orders feeds daily through tables/orders",
        "payments feeds daily through tables/payments",
    ]
    assert "stock" in site.page.value("document.querySelector('.alone').innerText")


def start_run(site: Site) -> None:
    site.show("p/orders")
    site.press("Start a run")
    site.give_reason("a test")
    site.press("Start the run")


def stop_run(site: Site) -> None:
    site.show("p/stock")
    site.press("Stop the run")
    site.page.value("document.querySelector('dialog [name=force]').click()")
    site.give_reason("a test")
    site.press("Stop the run")


def resume(site: Site) -> None:
    site.show("p/tickets")
    site.press("Resume")
    site.give_reason("a test")
    site.press("Resume")


def release(site: Site) -> None:
    site.show()
    site.press("Release")
    site.give_reason("a test")
    site.press("Release the schedule")


def hold(site: Site) -> None:
    site.show("p/orders")
    site.press("Hold the schedule")
    site.give_reason("a test")
    site.press("Hold the schedule")


def change_limits(site: Site) -> None:
    site.show("p/orders/offsets")
    site.press("Change the limits")
    site.page.value("document.querySelector('dialog [name=threshold]').value = '250'")
    site.give_reason("a test")
    site.press("Change the limits")


def audit(site: Site) -> None:
    site.show("p/orders")
    site.press("Audit")
    site.press("Audit")


def move_offsets(site: Site) -> None:
    site.show("p/orders/offsets")
    site.press("Move the offsets")
    site.press("Preview")
    site.page.wait_for("document.querySelector('dialog .preview')?.innerText.includes('will be there twice')")
    site.give_reason("a test")
    site.press("Move the offsets")


PREVIEWED = "document.querySelector('dialog .preview')?.innerText"


def backfill(site: Site) -> None:
    site.show("p/orders")
    site.press("Backfill")
    site.page.type("17")
    site.press("Preview")
    assert "rows that it has already are left out" in site.page.wait_for(PREVIEWED)
    site.give_reason("a test")
    site.press("Backfill")


def redo(site: Site) -> None:
    site.show("p/orders")
    site.press("Redo a file")
    site.page.type("monday.json")
    site.press("Preview")
    assert "replaces the rows where file = 'monday.json'" in site.page.wait_for(PREVIEWED)
    site.give_reason("a test")
    site.press("Redo the file")


def repair(site: Site) -> None:
    site.show("p/orders")
    site.press("Repair")
    site.press("See what there is to repair")
    assert "Wherry repairs 1 of 2 findings." in site.page.wait_for(PREVIEWED)
    site.page.value("document.querySelectorAll('dialog [name=accept]')[1].click()")
    site.give_reason("a test")
    site.press("Repair")


def replay(site: Site) -> None:
    site.show("p/orders/refused")
    site.press("Replay")
    site.press("Preview")
    site.page.wait_for(
        "document.querySelector('dialog .preview')?.innerText.includes('61 would be delivered, 22 refused again')"
    )
    site.give_reason("a test")
    site.press("Replay 83 rows")


def discard(site: Site) -> None:
    site.show("p/orders/refused")
    site.press("Discard")
    site.give_reason("a test")
    site.press("Discard 83 rows")


CHANGES: dict[Callable[[Site], None], tuple[str, dict[str, Any], str]] = {
    start_run: ("start_run", {"reason": "a test"}, "The run succeeded: 20,000 read"),
    stop_run: ("stop_run", {"reason": "a test", "force": True}, "The run was asked to stop at once."),
    resume: ("resume_pipeline", {"reason": "a test"}, "Runs may begin again."),
    release: ("hold_schedule", {"reason": "a test", "held": False, "pipeline": "prices"}, "begins runs of it again"),
    hold: ("hold_schedule", {"reason": "a test", "held": True}, "begins no more runs"),
    change_limits: ("change_dlq", {"reason": "a test", "threshold": 250, "window": None, "rows": None}, "250 of 1,000"),
    audit: ("run_audit", {"pipeline": "orders"}, "Every row is where it should be"),
    move_offsets: ("move_offsets", {"reason": "a test", "back": 1, "preview": False}, "The offsets were moved."),
    replay: (
        "replay_rows",
        {"reason": "a test", "code": "CAST", "stage": "cast", "preview": False},
        "The replay succeeded",
    ),
    backfill: (
        "run_backfill",
        {"reason": "a test", "start": "17", "end": "", "only": "", "again": False, "preview": False},
        "The backfill succeeded: 20,000 read",
    ),
    redo: ("run_redo", {"reason": "a test", "file": "monday.json", "preview": False}, "The redo succeeded"),
    repair: (
        "run_repair",
        {"reason": "a test", "accept": [FINDINGS[1]["id"]], "preview": False},
        "Done: batch 412 of lane 0, orders: 1,000 rows put back.",
    ),
    discard: ("discard_rows", {"reason": "a test", "code": "CAST", "expected": 83}, "83 rows were discarded."),
}


@pytest.mark.parametrize("act", CHANGES, ids=lambda act: act.__name__)
def test_each_change_asks_and_says_what_it_did(site: Site, act: Callable[[Site], None]) -> None:
    """The server gets the reason and a new key."""
    operation, asked, said = CHANGES[act]
    act(site)
    assert said in site.page.wait_for(DONE)
    name, words, key = site.service.changes[-1]
    assert (name, {each: words.get(each) for each in asked}) == (operation, asked)
    assert len({each[2] for each in site.service.changes}) == len(site.service.changes)
    assert len(key) >= 32
    site.press("Close")
    site.page.wait_for("!document.querySelector('dialog')")


def list_shown_buttons(site: Site) -> list[str]:
    """Return the texts of the buttons of the dialog that can be seen."""
    found: list[str] = site.page.value(
        "[...document.querySelectorAll('dialog button')].filter((each) => !each.hidden).map((each) => each.textContent)"
    )
    return found


def test_old_batches_are_changed_only_after_a_preview(site: Site) -> None:
    """The button comes with the preview, and goes when the preview is about something else. Enter shows a preview."""
    site.show("p/orders")
    site.press("Redo a file")
    assert list_shown_buttons(site) == ["Preview", "Cancel"]
    site.page.type("monday.json")
    site.page.key("Enter", 13, "\r")
    site.page.wait_for(PREVIEWED)
    assert list_shown_buttons(site) == ["Redo the file", "Preview", "Cancel"]
    site.page.value("document.querySelector('dialog [name=file]').focus()")
    site.page.type("2")
    assert list_shown_buttons(site) == ["Preview", "Cancel"]
    assert [words["preview"] for _, words, _ in site.service.changes] == [True]


def test_a_preview_needs_what_it_is_about(site: Site) -> None:
    """The dialog says what is missing, and sends nothing."""
    site.show("p/orders")
    site.press("Redo a file")
    site.press("Preview")
    assert "Give a value: File." in site.page.wait_for("document.querySelector('dialog [role=alert]')?.innerText")
    assert site.service.changes == []


def test_a_sound_pipeline_offers_no_repair(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The preview says that nothing is wrong."""
    monkeypatch.setitem(PREVIEWS, "run_repair", {"damage": "", "audit": AUDIT})
    site.show("p/orders")
    site.press("Repair")
    site.press("See what there is to repair")
    assert "Nothing is wrong" in site.page.wait_for(PREVIEWED)
    assert list_shown_buttons(site) == ["See what there is to repair", "Cancel"]


def test_what_a_task_found_is_shown_after_its_dialog_is_closed(site: Site) -> None:
    """The list of tasks leads to each of them."""
    repair(site)
    site.page.wait_for(DONE)
    site.press("Close")
    site.go("tasks")
    site.page.value("document.querySelector('main tbody a').click()")
    site.page.wait_for(f"{TEXT}.includes('1,000 rows put back')")


@pytest.mark.parametrize("view", ["tasks", f"tasks/{77:032x}"])
def test_a_task_that_works_shows_how_far_it_is(site: Site, view: str) -> None:
    """It counts the batches of its run, as they are settled."""
    (task,) = site.service.planned_tasks.values()
    works = {**task, "pipeline": "stock", "run": RUN, "state": "working", "doing": "running", "ended_at": None}
    site.service.planned_tasks = site.service.tasks = {task["task"]: {**works, "result": None}}
    site.show(view)
    pass_on = site.service.happenings.of("stock", {})
    for event in make_batches(3):
        pass_on(event)
    site.page.wait_for(f"{TEXT}.includes('3 batches, 3,000 rows read')")


PLAN = "document.querySelector('.plan')?.innerText"


def test_a_plan_is_shown_with_all_that_it_would_do(site: Site) -> None:
    """The operation, the arguments, those that are empty, the preview, the agent, and the end."""
    site.show("plans")
    shown = site.page.wait_for(PLAN)
    for fact in ("Discard refused rows of orders", "claude", "the supplier sends these rows again", "CAST", "2099"):
        assert fact in shown
    assert "83 rows would be discarded" in shown
    assert "Without a value: ids, contains." in shown
    states = site.list_texts(".plan .state", "lastChild.textContent")
    assert states == ["waits for approval", "waits for approval", "waits for approval", "approved", "carried out"]
    assert site.page.value("document.title") == "3 plans wait · Wherry"


def test_a_planned_definition_is_compared_with_the_stored_one(site: Site) -> None:
    """Each line that goes or comes has its own mark and its own colour."""
    site.show("plans")
    assert site.page.wait_for("document.querySelector('.changes .less')?.textContent") == "- run: {runners: 2}\n"
    assert site.list_texts(".changes .add") == ["+ run: {runners: 4}\n"]


def test_a_person_approves_what_was_shown(site: Site) -> None:
    """The dialog shows the change again. The server gets the digest of what was shown."""
    site.show("plans")
    site.press("Approve")
    asked = site.page.wait_for("document.querySelector('dialog')?.innerText")
    assert "83 rows would be discarded" in asked
    assert "the supplier sends these rows again" in asked
    site.press("Approve this change")
    assert "Approved. claude may carry it out once" in site.page.wait_for(DONE)
    name, words, _ = site.service.changes[-1]
    assert (name, words) == ("approve_plan", {"plan": f"{1:032x}", "digest": "digest-1"})
    site.press("Close")
    site.page.wait_for("document.querySelector('.plan .state').innerText.includes('approved')")


def test_a_link_in_a_dialog_closes_it(site: Site) -> None:
    """The rows that a plan is about are then there to be read."""
    site.show("plans")
    site.press("Approve")
    site.page.value("document.querySelector('dialog a').click()")
    site.page.wait_for(f"!document.querySelector('dialog') && {TEXT}.includes('CAST by cast: 83 rows wait')")


def test_a_plan_can_be_left(site: Site) -> None:
    """Nothing is sent, and the plan waits on."""
    site.show("plans")
    site.press("Approve")
    site.press("Leave it")
    site.page.wait_for("!document.querySelector('dialog')")
    assert site.service.changes == []
    assert "waits for approval" in site.page.value(PLAN)


def test_a_plan_is_approved_only_after_its_preview_is_there(site: Site) -> None:
    """Until then, the page says what the preview does."""
    task = site.service.planned_tasks[f"{77:032x}"]
    site.service.planned_tasks[task["task"]] = {**task, "ended_at": None, "state": "working", "doing": "reading"}
    site.service.plans = [PLANS[2]]
    site.show("plans")
    assert "The preview works: reading." in site.page.wait_for(PLAN)
    assert site.list_texts(".plan button") == []
    site.service.planned_tasks[task["task"]] = task
    site.page.wait_for("document.querySelector('.plan button')")
    assert "Wherry repairs 1 of 2 findings." in site.page.value(PLAN)


def test_a_person_does_not_approve_an_own_plan(site: Site) -> None:
    """The page says that another person can."""
    site.service.plans = [{**PLANS[0], "by": "anna"}]
    site.show("plans")
    assert "Another person approves it." in site.page.wait_for(PLAN)
    assert site.list_texts(".plan button") == []


DIMMED = "[...document.querySelectorAll('main button[aria-disabled]')].map((each) => each.textContent)"


@pytest.mark.parametrize(
    ("right", "dimmed"),
    [
        (Right.READ, ["Start a run", "Hold the schedule", "Repair", "Backfill", "Redo a file"]),
        (Right.OPERATE, ["Repair", "Backfill", "Redo a file"]),
        (Right.ADMIN, []),
    ],
)
def test_a_button_without_its_right_is_dimmed(site: Site, right: Right, dimmed: list[str]) -> None:
    """The others work."""
    site.service.right = right
    site.show("p/orders")
    assert site.page.value(DIMMED) == dimmed


def test_a_dimmed_button_says_why_and_does_nothing(site: Site) -> None:
    """The keyboard reaches it. The dialog names the right that is missing and how to get it."""
    site.service.right = Right.OPERATE
    site.show("p/orders")
    site.save_picture("operate")
    site.page.value("document.querySelector('main button[aria-disabled]').focus()")
    site.page.key("Enter", 13, "\r")
    said = site.page.wait_for("document.querySelector('dialog')?.innerText")
    assert "needs the right to admin, and anna has the right to operate" in said
    assert "wherry serve DIR --new-token NAME --right admin" in said
    assert check_with_axe(site.page) == []
    site.page.key("Escape", 27)
    site.page.wait_for("!document.querySelector('dialog')")
    assert site.page.value("document.activeElement.textContent") == "Repair"
    assert site.service.changes == []


def test_a_plan_needs_its_own_right(site: Site) -> None:
    """A person with the right to operate approves a discard, and no repair."""
    site.service.right = Right.OPERATE
    site.show("plans")
    site.page.wait_for("document.querySelectorAll('.plan button').length === 3")
    assert site.page.value("[...document.querySelectorAll('.plan button')].map((each) => each.ariaDisabled)") == [
        None,
        "true",
        "true",
    ]


def test_a_task_can_be_cancelled(site: Site) -> None:
    """The dialog asks for the reason."""
    site.service.tasks["1" * 32] = {
        "task": "1" * 32,
        "operation": "start_run",
        "pipeline": "orders",
        "state": "working",
        "by": "owner",
        "reason": "by hand",
        "began_at": "2026-11-30T01:05:25+00:00",
        "doing": "running",
    }
    site.show("tasks")
    site.press("Cancel")
    site.give_reason("wrong table")
    site.press("Cancel the task")
    assert "The task was cancelled." in site.page.wait_for(DONE)
    name, words, _ = site.service.changes[-1]
    assert (name, words["task"], words["reason"]) == ("cancel_task", "1" * 32, "wrong table")


def test_a_change_without_a_reason_is_not_sent(site: Site) -> None:
    """The dialog says what is missing."""
    site.show("p/orders")
    site.press("Start a run")
    site.press("Start the run")
    assert "Give a reason" in site.page.wait_for("document.querySelector('dialog [role=alert]')?.innerText")
    assert site.service.changes == []


def test_a_problem_is_shown_with_what_to_do(site: Site) -> None:
    """A person can then try again, with a new key."""
    site.service.problem = Refusal("orders is owned by a run on ship.", hint="Stop that run.")
    discard(site)
    said = site.page.wait_for("document.querySelector('dialog .problem')?.innerText")
    assert "orders is owned by a run on ship." in said
    assert "Stop that run." in said
    site.service.problem = None
    site.press("Discard 83 rows")
    assert "83 rows were discarded" in site.page.wait_for(DONE)
    (first, again) = site.service.changes
    assert first[2] != again[2]


def test_the_token_leaves_the_address(site: Site) -> None:
    """It stays in the session, so that the page can be loaded again. Without one, the page asks for it."""
    site.show()
    address = site.address.split("#")[0]
    assert "token" not in site.page.value("location.href")
    site.page.open(address)
    site.page.wait_for("document.querySelector('#list')")
    site.page.value("sessionStorage.clear()")
    site.page.open(address)
    assert "token" in site.page.wait_for("document.querySelector('form.token')?.innerText")
    site.page.type(site.address.partition("#token=")[2])
    site.page.key("Enter", 13, "\r")
    site.page.wait_for("document.querySelector('#list')")


def test_a_wrong_token_is_asked_for_again(site: Site) -> None:
    """The page shows the message of the server."""
    site.page.open("about:blank")
    site.page.open(f"{site.address.partition('#')[0]}#token=wrong")
    assert "This token is not known." in site.page.wait_for(
        "document.querySelector('form.token [role=alert]')?.innerText"
    )


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_is_wider_than_a_phone(site: Site, view: str) -> None:
    """Nothing scrolls sideways at 320 pixels, except inside its own frame."""
    site.show(VIEWS[view], width=320)
    site.save_picture(f"phone-{view}")
    assert site.page.value("document.documentElement.scrollWidth") <= 320


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing(site: Site, view: str, dark: bool) -> None:
    """The page can be read by a screen reader, and its colours have enough contrast."""
    site.show(VIEWS[view], dark=dark)
    assert check_with_axe(site.page) == []


DIALOGS = {
    "move": ("p/orders/offsets", ["Move the offsets", "Preview"]),
    "backfill": ("p/orders", ["Backfill", "Preview"]),
    "redo": ("p/orders", ["Redo a file", "Preview"]),
    "repair": ("p/orders", ["Repair", "See what there is to repair"]),
    "approve": ("plans", ["Approve"]),
}
"""The view and the buttons that lead to a dialog with a preview."""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", DIALOGS)
def test_axe_finds_nothing_in_a_dialog(site: Site, name: str, dark: bool) -> None:
    """Its fields have labels, its name is its title, and it is no wider than a phone."""
    view, buttons = DIALOGS[name]
    site.show(view, width=390, dark=dark)
    site.press(buttons[0])
    site.page.value("(document.querySelector('dialog [name=file]') || {}).value = 'monday.json'")
    for each in buttons[1:]:
        site.press(each)
    site.page.wait_for("document.querySelector('dialog .preview')")
    assert check_with_axe(site.page) == []
    assert site.page.value("document.querySelector('dialog').scrollWidth") <= 390


def test_the_page_is_dark_if_the_reader_wants_it(site: Site) -> None:
    """The colours of text and background are exchanged."""
    behind = (
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number).reduce((a, b) => a + b)"
    )
    site.show(dark=True)
    assert site.page.value(behind) < 150
    site.show()
    assert site.page.value(behind) > 600


def test_everything_can_be_done_by_keyboard(site: Site) -> None:
    """Tab reaches a button, Enter opens its dialog, Escape closes it, and the focus comes back."""
    site.show("p/orders")
    focused = "document.activeElement.textContent"
    site.page.key("Tab", 9)
    seen = [site.page.value(focused)]
    while seen[-1] != "Start a run":
        site.page.key("Tab", 9)
        seen.append(site.page.value(focused))
        assert len(seen) < 40
    site.page.key("Enter", 13, "\r")
    assert site.page.value("document.activeElement.name") == "reason"
    site.page.key("Escape", 27)
    site.page.wait_for("!document.querySelector('dialog')")
    assert site.page.value(focused) == "Start a run"


def test_the_skip_link_leads_to_the_content(site: Site) -> None:
    """It is the first element that Tab reaches."""
    site.show()
    site.page.value("document.activeElement.blur()")
    site.page.key("Tab", 9)
    assert site.page.value("document.activeElement.textContent") == "Skip to the content"
    site.page.key("Enter", 13, "\r")
    assert site.page.value("document.activeElement.id") == "main"


def test_the_focus_stays_while_the_page_renews_itself(site: Site) -> None:
    """Also the text in the filter stays."""
    site.show()
    site.page.value("document.querySelector('#filter').focus()")
    site.page.type("ord")
    site.service.entries = [make_entry("orders", refused=152)]
    site.page.wait_for(f"{TEXT}.includes('152 rows wait')")
    assert site.page.value("[document.activeElement.id, document.activeElement.value]") == ["filter", "ord"]


def test_hostile_texts_stay_texts(site: Site) -> None:
    """Names, errors, rows and causes are never read as HTML."""
    service = site.service
    service.broken = {HOSTILE: HOSTILE}
    service.entries = [
        make_entry(
            "orders",
            state="failed",
            held=HOSTILE,
            last_run=make_last_run(error={**ERROR, "message": HOSTILE, "hint": HOSTILE}),
        )
    ]
    service.refused = [{**REFUSED, "message": HOSTILE, "row": {HOSTILE: HOSTILE}, "original": {HOSTILE: HOSTILE}}]
    service.report = {**REPORT, "notices": [HOSTILE]}
    arguments = {"pipeline": HOSTILE, "reason": HOSTILE, HOSTILE: HOSTILE, "ids": [HOSTILE]}
    found = {"lanes": {HOSTILE: {"from": HOSTILE, "to": HOSTILE}}, "destinations": {HOSTILE: HOSTILE}}
    service.plans = [
        make_plan(1, HOSTILE, arguments, by=HOSTILE, preview={HOSTILE: HOSTILE}),
        make_plan(2, "move_offsets", arguments, preview=found),
        make_plan(3, "put_definition", {**arguments, "definition": HOSTILE}),
        make_plan(4, "start_run", {**arguments, "definition": HOSTILE}, state="approved", approved_by=HOSTILE),
    ]
    (task,) = service.planned_tasks.values()
    problem = {**msgspec.to_builtins(describe_problem(Refusal(HOSTILE, hint=HOSTILE)))}
    service.planned_tasks = {
        task["task"]: {**task, "by": HOSTILE, "reason": HOSTILE, "doing": HOSTILE, "problem": problem}
    }
    service.definition = {**service.definition, "stages": [{"filter": HOSTILE, "name": HOSTILE}]}
    for view in VIEWS.values():
        if view != "p/payments":
            site.show(view)
            assert site.page.value("[window.hurt, document.querySelectorAll('main img, main script').length]") == [
                None,
                0,
            ], view
    assert "onerror" in site.read() or "onerror" in site.page.value("document.body.innerHTML")


def test_the_page_asks_no_other_host_and_breaks_no_rule(site: Site) -> None:
    """Each request goes to the server, no script raises, and the content policy blocks nothing."""
    for view in VIEWS.values():
        site.show(view)
        own = site.address.split("#")[0]
        assert [url for url in site.page.list_requests() if not url.startswith(own)] == [], view
        assert site.page.list_complaints() == [], view


def test_two_hundred_pipelines_are_painted_within_a_second(site: Site) -> None:
    """The browser measures its first paint, and the page when the list is there. The fastest of three tries counts."""
    site.service.entries = [make_entry(f"pipeline-{number}", refused=number % 50) for number in range(200)]
    times = []
    for _ in range(3):
        site.page.open("about:blank")
        site.page.open(site.address)
        site.page.wait_for("document.querySelectorAll('#list tbody tr').length === 200")
        names = ("first-contentful-paint", "wherry-drawn")
        times.append([site.page.value(f"performance.getEntriesByName('{name}')[0].startTime") for name in names])
    assert 0 < max(min(times)) < 1_000
    site.save_picture("many")


def test_the_page_says_when_the_server_does_not_answer(screen: Page, service: PreparedService, tmp_path: Path) -> None:
    """What was shown stays."""
    with serve(service, tmp_path) as address:
        site = Site(page=screen, address=address, service=service)
        site.show()
    screen.wait_for("document.querySelector('#link').innerText.includes('does not answer')")
    assert "payments" in site.read()


def check_with_axe(page: Page) -> list[Any]:
    """Return what axe finds wrong with the page, each with where."""
    script = (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    page.ask("Runtime.evaluate", expression=script)
    show = "[each.id, each.nodes.map((node) => node.html.slice(0, 200))]"
    run = f"axe.run().then((found) => found.violations.map((each) => {show}))"
    said = page.ask("Runtime.evaluate", expression=run, returnByValue=True, awaitPromise=True)
    assert "exceptionDetails" not in said, said
    found: list[Any] = said["result"]["value"]
    return found
