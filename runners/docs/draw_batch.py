"""Draws the pictures of a batch: `python runners/docs/draw_batch.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from origins.quick_dataclass import dataclass

FOLDER = Path(__file__).parent
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f; text-anchor: middle }
  .title { font-weight: 600; font-size: 15px }
  .rule { font: 15px ui-monospace, monospace }
  rect { fill: #f6f8fa; stroke: #57606a; stroke-width: 1.5 }
  .book { fill: #ddf4ff; stroke: #0969da } .bad { fill: #ffebe9; stroke: #cf222e } .quiet { stroke-dasharray: 4 3 }
  path { fill: none; stroke: #57606a; stroke-width: 1.5; marker-end: url(#tip) }
  marker path { fill: #57606a; marker: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } rect { fill: #161b22; stroke: #8b949e }
    .book { fill: #0c2d6b; stroke: #58a6ff } .bad { fill: #490202; stroke: #ff7b72 }
    path { stroke: #8b949e } marker path { fill: #8b949e }
  }
"""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Boxes of 140 by 80, with arrows between them and a line below."""

    height: int
    boxes: Sequence[tuple[int, int, str, str, tuple[str, str]]]
    """Left, top, class, title, and two lines."""
    arrows: Sequence[str]
    rule: str
    says: str
    """The picture in words."""


WIDTH, BOX = 880, (140, 80)
PICTURES = {
    "batch.svg": Picture(
        height=310,
        boxes=(
            (10, 40, "box", "Origin", ("files, a table", "what waits?")),
            (190, 40, "book", "1 Plan", ("the ledger records", "which rows")),
            (370, 40, "box", "2 Stages", ("cast, require,", "filter, Python …")),
            (550, 40, "box", "3 Destinations", ("rows and batch id", "in one commit")),
            (730, 40, "book", "4 Settle", ("counts compared,", "offset moves on")),
            (370, 180, "quiet", "Filtered", ("counted", "")),
            (550, 180, "bad", "DLQ", ("refused rows", "with the reason")),
        ),
        arrows=(
            "M150 80 H184",
            "M330 80 H364",
            "M510 80 H544",
            "M690 80 H724",
            "M440 120 V174",
            "M475 120 V150 H620 V174",
            "M690 220 H800 V126",
        ),
        rule="for every destination: read + changed = delivered + filtered + refused",
        says="A batch is planned in the ledger, passes the stages, and reaches the destinations. Refused rows go to "
        "the DLQ. Then the counts are compared, and the offset moves on.",
    ),
    "states.svg": Picture(
        height=310,
        boxes=(
            (10, 110, "book", "Planned", ("which rows;", "nothing is written")),
            (250, 40, "book", "Decided", ("what becomes of", "each row is stored")),
            (490, 40, "box", "Delivered", ("all destinations", "and the DLQ")),
            (730, 110, "book", "Settled", ("counts; the offset", "moves on")),
            (250, 190, "book quiet", "Cancelled", ("nothing landed;", "planned again")),
            (490, 190, "box", "One write", ("straight: the", "commit decides")),
        ),
        arrows=(
            "M150 130 H200 V80 H244",
            "M390 80 H484",
            "M630 80 H680 V130 H724",
            "M150 170 H200 V230 H244",
            "M150 150 H440 V215 H484",
            "M630 230 H680 V170 H724",
        ),
        rule="the ledger records the blue ones",
        says="A batch is planned. One write decides and delivers it, or it is decided first and delivered then. "
        "Then it is settled. A batch that delivered nothing may be cancelled and planned again.",
    ),
}


def draw(picture: Picture) -> str:
    """The picture as SVG. It has colours for light and for dark pages."""
    width, height = BOX
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {picture.height}" role="img" '
        f'aria-label="{picture.says}">',
        f"<style>{STYLE}</style>",
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 Z"/></marker>',
        *(f'<path d="{arrow}"/>' for arrow in picture.arrows),
    ]
    for left, top, kind, title, texts in picture.boxes:
        middle = left + width // 2
        lines.append(f'<rect class="{kind}" x="{left}" y="{top}" width="{width}" height="{height}" rx="6"/>')
        lines.append(f'<text class="title" x="{middle}" y="{top + 26}">{escape(title)}</text>')
        lines += [f'<text x="{middle}" y="{top + 46 + 18 * n}">{escape(text)}</text>' for n, text in enumerate(texts)]
    lines.append(f'<text class="rule" x="{WIDTH // 2}" y="{picture.height - 15}">{picture.rule}</text>')
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    for name, picture in PICTURES.items():
        (FOLDER / name).write_text(draw(picture), encoding="utf-8")
