"""A report in a real browser: on a phone, with dark colours, and with the keyboard."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runners.operations.reports.report_page import render_cell, render_page
from runners.operations.reports.write_html import render_index
from tests.browser import Page, open_browser
from tests.runners.operations.reports.test_report_page import HOSTILE, REPORT, RUN, SAMPLES, make_hostile, make_timeline

FAILED = {
    "code": "WINDOW",
    "message": "too many rows were refused.\n  lane 0, batch 412: landing/orders/part-0412.json",
    "hint": "see it       wherry preview orders.yaml",
    "stage": "cast",
    "lane": "0",
}
KEPT = {"lane": "0", "number": 412, "of": "a.json", "stage": "cast", "rows": [{"id": 7, "email": "a***"}]}


@pytest.fixture(scope="module")
def screen() -> Iterator[Page]:
    """A browser for all tests of the module."""
    with open_browser() as page:
        yield page


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """The page of a failed run with each section that a page can have."""
    run = {
        **RUN,
        "status": "failed",
        "report": {**REPORT, "error": FAILED, "snapshot": KEPT, "notices": ["a.txt: odd"]},
    }
    return write_page(
        tmp_path, render_page(run, {"name": "orders", "stages": [{"cast": {"amount": "decimal(10,2)"}}]}, SAMPLES)
    )


def write_page(place: Path, content: str) -> Path:
    file = place / "report.html"
    file.write_text(content, encoding="utf-8")
    return file


def save_picture(screen: Page, name: str) -> None:
    """Save a picture in the folder that WHERRY_PICTURES names, if it is set."""
    if os.environ.get("WHERRY_PICTURES"):
        screen.take_picture(Path(os.environ["WHERRY_PICTURES"]) / f"{name}.png")


def measure_brightness(screen: Page, which: str, what: str) -> int:
    """Return the brightness of a colour of the page, from 0 to 765."""
    said = screen.value(f"getComputedStyle(document.querySelector('{which}')).{what}")
    return sum(int(part) for part in said.removeprefix("rgb(").removesuffix(")").split(","))


def test_a_page_requests_nothing_and_raises_no_error(screen: Page, report: Path) -> None:
    """There is no request, no script error, and nothing that its content policy blocked."""
    screen.open(report)
    save_picture(screen, "wide")
    assert (screen.list_requests(), screen.list_complaints()) == ([], [])
    assert screen.value("document.querySelectorAll('h2').length") >= 6


@pytest.mark.parametrize("width", [320, 1_200])
def test_no_page_is_wider_than_the_screen(screen: Page, report: Path, width: int) -> None:
    """Wide tables scroll inside their containers."""
    screen.open(report, width=width)
    save_picture(screen, f"light-{width}")
    assert screen.value("document.documentElement.scrollWidth") <= width


def test_the_page_follows_dark_mode(screen: Page, report: Path) -> None:
    """The text has enough contrast in light and dark colours."""
    for dark in (False, True):
        screen.open(report, width=390, dark=dark)
        save_picture(screen, f"phone-{'dark' if dark else 'light'}")
        behind, text = (
            measure_brightness(screen, ".wherry", "backgroundColor"),
            measure_brightness(screen, "h1", "color"),
        )
        assert (behind < 150) == dark
        assert abs(behind - text) > 450
        assert measure_brightness(screen, "html", "backgroundColor") < 150 if dark else True


def test_the_keyboard_reaches_all_that_opens_or_scrolls(screen: Page, report: Path) -> None:
    """The Tab key moves to each such element, and Enter opens it."""
    screen.open(report)
    wanted = screen.value("document.querySelectorAll('summary, .wide').length")
    reached = set()
    for _ in range(wanted):
        screen.key("Tab", 9)
        reached.add(screen.value("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
    assert len(reached) == wanted > 5
    while screen.value("document.activeElement.tagName") != "SUMMARY":
        screen.key("Tab", 9)
    screen.key("Enter", 13, "\r")
    assert screen.value("document.activeElement.parentElement.open")


def test_a_page_of_ten_thousand_batches_opens_fast(screen: Page, tmp_path: Path) -> None:
    """It opens within a second, and is smaller than 2 MiB."""
    lanes = {str(n): {"batches": 100, "offset": {"file": f"{n}.json"}} for n in range(100)}
    report = {**REPORT, "batches": 10_000, "lanes": lanes, "timeline": make_timeline(lanes=100, batches=100)}
    file = write_page(tmp_path, render_page({**RUN, "report": report}, {"name": "orders"}, SAMPLES))
    assert file.stat().st_size < 2 << 20
    screen.open(file)
    save_picture(screen, "many")
    took = "performance.getEntriesByType('navigation')[0].loadEventEnd"
    assert 0 < screen.value(took) < 1_000


def test_values_with_html_are_shown_as_text(screen: Page, tmp_path: Path) -> None:
    """No script in a value runs or loads anything, in a report, a notebook cell or an index."""
    run = make_hostile()
    texts = {
        "page": render_page(run, {"name": HOSTILE}, [{**SAMPLES[0], "message": HOSTILE, "row": {HOSTILE: HOSTILE}}]),
        "cell": render_cell(run),
        "index": render_index(
            {HOSTILE: [{**run, "batches": 1, "read": 1, "nacked": 0, "error": HOSTILE}]}, {HOSTILE: HOSTILE}, {}
        ),
    }
    for name, content in texts.items():
        screen.open(write_page(tmp_path, content))
        save_picture(screen, f"hostile-{name}")
        assert (screen.list_requests(), screen.list_complaints()) == ([], []), name
        assert screen.value("document.querySelectorAll('script, img, iframe').length") == 0
        assert "onerror" in screen.value("document.querySelector('h1, h2').parentElement.innerText")


def test_a_notebook_cell_keeps_the_notebook_style(screen: Page, tmp_path: Path) -> None:
    """The cell has the flow, and the styles of the notebook around it do not change."""
    run: dict[str, Any] = {**RUN, "report": REPORT}
    screen.open(write_page(tmp_path, f"<!doctype html><h1 id=own>mine</h1>{render_cell(run)}"))
    save_picture(screen, "cell")
    assert screen.value("document.querySelectorAll('.flow .box').length") >= 5
    assert screen.value("getComputedStyle(document.querySelector('#own')).fontSize") == "32px"
    assert screen.value("getComputedStyle(document.body).margin") == "8px"
    assert screen.list_complaints() == []
