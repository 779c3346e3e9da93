"""How rules fared, as a person reads it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from origins.batch import JSON
from runners.command_line.printing import table


def trend_table(found: Sequence[Mapping[str, JSON]], runs: Sequence[str]) -> str:
    """Each rule, and below it how it fared in each run that asked one, the newest last."""
    if not found:
        return "No run has asked anything yet: a stage `expect` says what is expected."
    asked = [run for run in runs if any(each["run"] == run for rule in found for each in rule["runs"])]
    rows = [["", _side_by_side([run[:8] for run in asked])]]
    for rule in found:
        fared = {each["run"]: percent(each) for each in rule["runs"]}
        rows += [[rule["stage"], rule["rule"]], ["", _side_by_side([fared.get(run, "-") for run in asked])]]
    return table(["stage", "rule, and the share that passed it by run, the newest last"], rows)


def _side_by_side(cells: Sequence[str]) -> str:
    return " ".join(f"{cell:<8}" for cell in cells)


def percent(fared: Mapping[str, JSON]) -> str:
    """The share as a person reads it; never 100% unless it is all."""
    share = fared["share"]
    if share is None:
        return "-"
    return "100%" if share == 1 else f"{math.floor(share * 10_000) / 100:.2f}%"
