"""Show the measurements as a table and as a plot."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from html import escape

from tests.benchmarks.case import Bar, Case, Result

ROW, LEFT, WIDE = 26, 480, 420
"""Sizes in pixels: the height of a row, the left end of its bar, and the width of the bars. A bar that is just met
takes half of the width."""


def format_table(case: Case, result: Result) -> str:
    """Return the medians and spreads of one case as a table, and its ratios with their bars."""
    scale = 1_000 if case.unit == "ms" else 1
    lines = [f"### {case.name}: {case.says}", ""]
    lines += [f"| way | times | median {case.unit} | mean | least | most |", "|---|---|---|---|---|---|"]
    for way, times in result.taken.items():
        shown = [statistics.median(times), statistics.mean(times), min(times), max(times)]
        digits = 0 if case.unit == "ms" and not way.startswith("memory") else 3
        factor = 1 if way.startswith("memory") else scale
        lines.append(f"| {way} | {len(times)} | " + " | ".join(f"{factor * each:,.{digits}f}" for each in shown) + " |")
    return "\n".join([*lines, "", *(f"- {_describe_bar(bar, result)}" for bar in case.bars), ""])


def draw_plot(measured: Sequence[tuple[Case, Result]]) -> str:
    """Return one SVG that shows how much of each bar is used. The dashed line marks the bars."""
    bars = [
        (case, bar, figure)
        for case, result in measured
        for bar in case.bars
        if (figure := bar.find_figure(result.taken))
    ]
    height = ROW * (len(bars) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDE + 140} {height}" '
        'font-family="sans-serif" font-size="13">',
        "<style>text{fill:#24292f} .met{fill:#2f7d4f} .missed{fill:#b3402a} line{stroke:#24292f} "
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3} line{stroke:#e6edf3}}</style>",
        f'<text x="{LEFT + WIDE // 2}" y="16" text-anchor="middle">the bar</text>',
    ]
    for index, (case, bar, figure) in enumerate(bars):
        top = ROW * (index + 1)
        long = max(0, min(WIDE, round(WIDE / 2 * figure / bar.most)))
        met = "met" if figure <= bar.most else "missed"
        parts += [
            f'<text x="{LEFT - 10}" y="{top + 16}" text-anchor="end">{escape(f"{case.name}: {_name_bar(bar)}")}</text>',
            f'<rect class="{met}" x="{LEFT}" y="{top + 4}" width="{long}" height="{ROW - 8}"/>',
            f'<text x="{LEFT + long + 8}" y="{top + 16}">{figure:.2f} (at most {bar.most:g})</text>',
        ]
    middle = LEFT + WIDE // 2
    parts.append(f'<line x1="{middle}" y1="{ROW - 4}" x2="{middle}" y2="{height - ROW}" stroke-dasharray="3 3"/>')
    return "\n".join([*parts, "</svg>", ""])


def _describe_bar(bar: Bar, result: Result) -> str:
    figure = bar.find_figure(result.taken)
    if figure is None:
        return f"{_name_bar(bar)}: not measured; the bar is {bar.most:g}"
    return f"{_name_bar(bar)}: **{figure:.2f}**, the bar is {bar.most:g}: {'met' if figure <= bar.most else 'missed'}"


def _name_bar(bar: Bar) -> str:
    return f"{bar.of} to {bar.to}" if bar.to else bar.of
