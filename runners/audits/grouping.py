"""Findings that are one thing said of many batches become one finding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from runners.audits.finding import Finding

_ALIKE = ("code", "destination", "lane", "remedy", "repair")


def grouped(found: Iterable[Finding]) -> list[Finding]:
    """The findings, with those of one kind about neighbouring batches of a lane put together."""
    groups: list[list[Finding]] = []
    for finding in sorted(found, key=_order):
        if groups and _goes_on(groups[-1][-1], finding):
            groups[-1].append(finding)
        else:
            groups.append([finding])
    return [_together(group) for group in groups]


def _order(finding: Finding) -> tuple[str, str, str, int, int]:
    numbers = (finding.version if finding.version is not None else -1, finding.number or 0)
    return (finding.code, finding.destination or "", finding.lane or "", *numbers)


def _goes_on(before: Finding, finding: Finding) -> bool:
    alike = all(getattr(before, name) == getattr(finding, name) for name in _ALIKE)
    same = before.version == finding.version or finding.code == "NOT_COMMITTED"
    return alike and same and before.number is not None and finding.number == before.number + 1


def _together(group: list[Finding]) -> Finding:
    first, last = group[0], group[-1]
    more = f" ({len(group) - 1:,} more like it, up to batch {last.number})" if len(group) > 1 else ""
    return replace(
        first,
        last=last.number,
        message=first.message + more,
        repair=first.repair.replace("FIRST", str(first.number)).replace("LAST", str(last.number)),
        plans=[plan for finding in group for plan in finding.plans],
        members=[finding.id for finding in group],
    )
