"""The meaning of the codes of errors and of refused rows, and the command to type after a run that failed with one.

CODES.md has the text for people. `wherry explain` prints the same text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).parents[1] / "CODES.md"
_ENTRY = re.compile(r"^### `(?P<code>\w+)`\n(?P<text>.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
_SENTENCE = re.compile(r"(?P<sentence>(?:`[^`]*`|[^`])*?)[.:](?: |$)")
"""A sentence ends at a dot or a colon, but not at one between backticks."""


@functools.cache
def read_codes() -> Mapping[str, str]:
    """Return what each code means and what to do, in the order of the document."""
    document = DOCUMENT.read_text(encoding="utf-8")
    return {entry["code"]: entry["text"].strip() for entry in _ENTRY.finditer(document)}


def summarise(code: str) -> str:
    """Return what a code means, up to the first full stop or colon.

    One between backticks or inside a word does not count.
    """
    summary = " ".join(read_codes()[code].split("\n- ")[0].split())
    first = _SENTENCE.match(summary)
    assert first is not None, code
    return f"{first['sentence']}."


@dataclass(frozen=True)
class Advice:
    """The command to type after a run failed with a code."""

    command: str
    """The command. `FILE` stands for the definition."""
    first: str = ""
    """What a person must change before, in a sentence. If empty, the command only shows more and changes nothing."""


_RUN, _PREVIEW, _VALIDATE = "wherry run FILE", "wherry preview FILE", "wherry validate FILE"
ADVICE: Mapping[str, Advice] = {
    "WINDOW": Advice(_PREVIEW),
    "STAGE_STOP": Advice(_PREVIEW),
    "EXPECTATION": Advice(_PREVIEW),
    "LIMIT": Advice(_PREVIEW),
    "PAUSED": Advice('wherry resume FILE --reason "…"', "See which rows are refused, and correct the cause."),
    "CARRY": Advice(_PREVIEW),
    "UNEXPECTED": Advice(_PREVIEW),
    "SCHEMA": Advice(_PREVIEW, "Correct the file, or set `on_change` in the definition."),
    "BUDGET": Advice("wherry dlq summary FILE"),
    "FALLBACK": Advice(_RUN, "Make the DLQ or its fallback writable."),
    "REFUSED_LATE": Advice(_RUN, "Remove the constraint that refuses the rows."),
    "STAGE": Advice(f"{_VALIDATE} --spark", "Correct the stage that the error names."),
    "AGGREGATE": Advice(f"{_VALIDATE} --spark", "Give the destination one batch, as the error says."),
    "TABLE": Advice(f"{_VALIDATE} --spark", "Correct the table that the error names, or create it."),
    "MISFIT": Advice(_RUN, "Change the columns that the error lists, in the stages or in the table."),
    "DEFINITION": Advice(_VALIDATE, "Correct the definition."),
    "FUNCTION": Advice(_VALIDATE, "Put the function where the definition says it is."),
    "KIND": Advice(_VALIDATE, "Install what the error names."),
    "REFUSED": Advice(_RUN, "Run again with the option that the error names."),
    "ORIGIN": Advice(_RUN, "Put back what is missing at the origin, or correct its place in the definition."),
    "DESTINATION": Advice(_RUN, "Put the destination back, or make its place usable."),
    "LEDGER": Advice(_RUN, "Put the ledger back as it was, or give its folder room and rights."),
    "STORE": Advice(_RUN, "Correct the URL, the credentials or the rights at the object store."),
    "LOCK": Advice(_RUN, "Make the state's directory writable for this user."),
    "ACCESS": Advice(_RUN, "Free disk space, or give this user the right that the error names."),
    "SESSION": Advice(_RUN, "Create a new Spark session, with its old settings and views."),
    "LATE": Advice(_RUN, "Set a longer `run.lease`, or give the machine less work."),
    "FAILED": Advice(_RUN, "Do what the error says."),
    "UNSURE": Advice("wherry audit FILE"),
    "UNBALANCED": Advice("wherry audit FILE"),
    "OVERWRITTEN": Advice("wherry audit FILE"),
    "SPARK": Advice("wherry doctor"),
    "VERSION": Advice("wherry doctor"),
    "JAR": Advice("wherry doctor"),
    "OWNED": Advice("wherry status FILE"),
    "FENCED": Advice("wherry status FILE"),
    "CONFLICT": Advice("wherry status FILE"),
    "RUN_FAILED": Advice("wherry status FILE"),
    "UNREACHABLE": Advice("wherry status FILE"),
    "SERVER": Advice("wherry status FILE"),
}
"""The advice for the code of an error. It is to run again only if something must be changed first."""


def find_advice(code: str) -> Advice:
    """Return the advice for an error with this code.

    A code without an entry, such as a later version's, gets that of FAILED.
    """
    return ADVICE.get(code, ADVICE["FAILED"])
