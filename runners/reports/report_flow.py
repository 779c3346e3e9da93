"""The two drawings of a report: where the rows went, and when each lane was at work on what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from origins.batch import JSON
from runners.numbered import batches_of
from runners.reports.report_html import text
from runners.reports.report_style import PHASES

SHOWN = 12
"""The stages and destinations that are drawn at most; tables have more."""


def flow(report: Mapping[str, JSON]) -> Iterator[str]:
    """Read → filtered, refused by cause, taken → each destination."""
    destinations, stages = report["destinations"], report["stages"]
    several = destinations if len(destinations) > 1 else {}
    own = {name: sum(each["filtered"] for each in stages if _is_of(each, several, name)) for name in destinations}
    first = next(iter(destinations), "")
    filtered = {each["stage"]: each["filtered"] for each in stages if not any(_is_of(each, several, n) for n in own)}
    refused = {each["stage"]: each["nacked"] for each in stages}
    parted = sum(each.get("read", report["read"]) for each in destinations.values()) == report["read"]
    lost = report["filtered"] - (sum(own.values()) if parted else own[first] if first else 0)
    taken = report["read"] + report["changed"] - report["nacked"] - lost
    middle = [
        *_by_cause("", "filtered", filtered, lost),
        *_by_cause("bad", "refused", refused, report["nacked"]),
        *([_box("", report["changed"], "more or fewer rows by stages that change them")] if report["changed"] else []),
        _box("good", taken, "taken"),
    ]
    ends = [_destination(name, each, own[name]) for name, each in list(destinations.items())[:SHOWN]]
    yield "<h2>Where the rows went</h2>"
    yield '<div class="flow" role="group" aria-label="Where the rows went">'
    yield f"<div>{_box('', report['read'], 'read')}</div>{_ARROW}<div>{''.join(middle)}</div>{_ARROW}"
    yield f"<div>{''.join(ends)}</div></div>"


def _by_cause(kind: str, said: str, stages: Mapping[str, int], whole: int) -> Iterator[str]:
    """A box for each stage, and one for what no stage says of itself."""
    named = {name: rows for name, rows in stages.items() if rows}
    for name, rows in list(named.items())[:SHOWN]:
        yield _box(kind, rows, f"{said} by {name}")
    rest = whole - sum(list(named.values())[:SHOWN])
    if rest > 0:
        yield _box(kind, rest, f"{said} otherwise" if named else said)


def _is_of(stage: Mapping[str, JSON], several: Mapping[str, JSON], destination: str) -> bool:
    """Whether the stage is a destination's own; where there is but one, its stages are everybody's."""
    return bool(several) and stage["stage"].startswith(f"{destination}/")


_ARROW = '<div class="to" aria-hidden="true"><span>→</span></div>'


def _box(kind: str, rows: int, said: str) -> str:
    return f'<div class="box {kind}"><b>{rows:,}</b>{text(said)}</div>'


def _destination(name: str, counts: Mapping[str, JSON], filtered: int) -> str:
    lost = f"; {filtered:,} filtered on the way" if filtered else ""
    owed = f"; {batches_of(counts['owed'])} still owed" if counts["owed"] else ""
    return _box("bad" if counts["owed"] else "good", counts["delivered"], f"delivered to {name}{lost}{owed}")


def spent(report: Mapping[str, JSON]) -> Iterator[str]:
    """The batches' time in parts of the whole, in colours and in words."""
    parts = {name: seconds for name, seconds in report.get("spent", {}).items() if seconds and name in PHASES}
    if sum(parts.values()):
        said = ", ".join(f"{PHASES[name][0]} {seconds:,.1f} s" for name, seconds in parts.items())
        yield "<h2>Where the batches' time went</h2>"
        yield f'<div class="bar" role="img" aria-label="{text(said)}">{_colours(parts)}</div>'
        keys = [f"{_square(name)}{PHASES[name][0]} {seconds:,.1f} s</span>" for name, seconds in parts.items()]
        yield f"<p>{' '.join(keys)}</p>"


def _square(phase: str) -> str:
    return f'<span class="key"><i style="background:{PHASES[phase][1]}"></i>'


def timeline(lanes: Mapping[str, Sequence[Mapping[str, JSON]]], lanes_in_all: int) -> Iterator[str]:
    """A line for each lane, from the beginning of the run to its end: when batches were carried, and on what."""
    whole = max((part["end"] for parts in lanes.values() for part in parts), default=0)
    if not whole:
        return
    yield "<h2>When each lane was at work</h2>"
    for name, parts in lanes.items():
        batches = sum(part["batches"] for part in parts)
        busy = sum(sum(part["spent"].values()) for part in parts)
        label = f"lane {name}: {batches_of(batches)}, {busy:,.1f} s of work"
        drawn = "".join(_part(part, whole) for part in parts)
        yield f'<div class="lane"><span title="{text(label)}">{text(name)}</span>'
        yield f'<div class="track" role="img" aria-label="{text(label)}">{drawn}</div></div>'
    yield f'<div class="lane"><span></span><div class="ends"><span>0 s</span><span>{whole:,.1f} s</span></div></div>'
    if lanes_in_all > len(lanes):
        yield f'<p class="dim">and {lanes_in_all - len(lanes):,} more lanes</p>'


def _part(part: Mapping[str, JSON], whole: float) -> str:
    left, width = 100 * part["start"] / whole, 100 * (part["end"] - part["start"]) / whole
    return f'<span style="left:{left:.2f}%;width:{width:.2f}%">{_colours(part["spent"])}</span>'


def _colours(parts: Mapping[str, float]) -> str:
    whole = sum(parts.values())
    return "".join(
        f'<span style="width:{100 * seconds / whole:.2f}%;background:{PHASES[name][1]}"></span>'
        for name, seconds in parts.items()
        if name in PHASES and seconds
    )
