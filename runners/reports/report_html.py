"""What pages are made of: text that stays text, tables, and a document that asks the network for nothing."""

from __future__ import annotations

import html
from collections.abc import Sequence

from origins.batch import JSON
from runners.printable import escape_controls
from runners.reports.report_style import STYLE

MOST_ROWS = 200
"""The rows that a table shows at most."""
STATES = ("succeeded", "failed", "stopped", "killed", "running")


def document(title: str, content: str) -> str:
    """A whole page. Its own policy forbids all but its style."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{text(title)}</title><style>{STYLE}</style></head><body><main class="wherry">{content}</main></body>'
        "</html>\n"
    )


def fragment(content: str) -> str:
    """The same inside of a page that is somebody else's, such as a notebook."""
    return f'<style>{STYLE}</style><div class="wherry">{content}</div>'


def text(value: JSON) -> str:
    """The value as text, whatever stands in it."""
    return html.escape(escape_controls(str(value)))


def state(status: str, said: str = "") -> str:
    """How a run went, in its colour."""
    kind = f' class="{status}"' if status in STATES else ""
    return f"<span{kind}>{text(said or status)}</span>"


def table(head: Sequence[str], rows: Sequence[Sequence[JSON]], *, called: str = "") -> str:
    """A table; columns of numbers stand right, and of many rows the first are shown. It can be scrolled by keyboard."""
    numbers = [bool(rows) and all(_is_number(row[at]) for row in rows) for at in range(len(head))]
    kind = [' class="n"' if number else "" for number in numbers]
    heads = "".join(f'<th scope="col"{kind[at]}>{text(name)}</th>' for at, name in enumerate(head))
    lines = [
        "<tr>" + "".join(f"<td{kind[at]}>{_cell(value)}</td>" for at, value in enumerate(row)) + "</tr>"
        for row in rows[:MOST_ROWS]
    ]
    more = f'<p class="dim">and {len(rows) - MOST_ROWS:,} more</p>' if len(rows) > MOST_ROWS else ""
    body = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="wide" tabindex="0" role="region" aria-label="{text(called or head[0])}">{body}</div>{more}'


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def link(place: str, said: str) -> Markup:
    """A link to a page that lies beside."""
    return Markup(f'<a href="{text(place)}">{text(said)}</a>')


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: JSON) -> str:
    if isinstance(value, Markup):
        return value
    if value is None:
        return ""
    return f"{value:,}" if _is_number(value) else text(value)
