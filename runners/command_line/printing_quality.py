"""How rules fared, as a person reads it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from origins.batch import JSON
from runners.command_line.printing import table


def trend_table(found: Sequence[Mapping[str, JSON]], runs: Sequence[str]) -> str:
    """A line for each rule, a column for each run that asked one, the newest last."""
    if not found:
        return "No run has asked anything yet: a stage `expect` says what is expected."
    asked = [run for run in runs if any(each["run"] == run for rule in found for each in rule["runs"])]
    rows = []
    for rule in found:
        fared = {each["run"]: each for each in rule["runs"]}
        rows.append([rule["stage"], rule["rule"], *[percent(fared[run]) if run in fared else "" for run in asked]])
    return table(["stage", "rule", *[run[:8] for run in asked]], rows)


def percent(fared: Mapping[str, JSON]) -> str:
    """The share as a person reads it; never 100% unless it is all."""
    share = fared["share"]
    if share is None:
        return "-"
    return "100%" if share == 1 else f"{math.floor(share * 10_000) / 100:.2f}%"
