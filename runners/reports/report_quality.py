"""What a report's page says of quality: for each rule how it fared, and a line from run to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from origins.batch import JSON
from runners.command_line.printing_quality import percent
from runners.reports.report_html import Markup, table, text

_WIDTH, _HEIGHT, _EDGE = 160, 28, 3


def quality(report: Mapping[str, JSON], trends: Sequence[Mapping[str, JSON]] = ()) -> Iterator[str]:
    """How the rules of the run's suites fared, with how they did before; nothing where there are none."""
    asked = report.get("quality") or ()
    if not asked:
        return
    before = {(each["stage"], each["rule"]): each["runs"] for each in trends}
    rows = [
        [
            each["stage"],
            each["rule"],
            percent(each),
            each["failed"],
            each["batches"],
            plot(each["rule"], before.get((each["stage"], each["rule"]), ())),
        ]
        for each in asked
    ]
    head = ["stage", "rule", "passed", "batches that failed it", "batches", "run by run"]
    yield f"<h2>Quality</h2>{table(head, rows, called='Quality by rule')}"


def plot(rule: str, runs: Sequence[Mapping[str, JSON]]) -> Markup:
    """The shares that passed from run to run, as a line from 0 to 100%; nothing where there are not two."""
    shares = [each["share"] for each in runs if each["share"] is not None]
    if len(shares) < 2:
        return Markup("")
    step = (_WIDTH - 2 * _EDGE) / (len(shares) - 1)
    heights = [_EDGE + (1 - share) * (_HEIGHT - 2 * _EDGE) for share in shares]
    points = " ".join(f"{_EDGE + at * step:.1f},{height:.1f}" for at, height in enumerate(heights))
    said = f"{rule}: {', '.join(percent({'share': share}) for share in shares)}"
    return Markup(
        f'<svg role="img" aria-label="{text(said)}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}"><title>{text(said)}</title>'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="2"/></svg>'
    )
