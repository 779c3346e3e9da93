"""The cases of `wherry test`: input rows, and the expected result after the stages."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from origins.batch import JSON
from origins.codec import JsonForm
from runners.definitions.definition import CASES
from runners.definitions.document import LARGEST, DefinitionError, Problem, decode_text, find_nearest, parse
from runners.definitions.kinds import get_our_kinds
from runners.definitions.yaml_reader import DefinitionReader
from runners.model.errors import Refusal
from runners.model.text import escape_line, paint


@dataclass(frozen=True, kw_only=True)
class Case:
    """Some rows, and what is expected of them. What is not named is not checked."""

    name: str
    rows: Sequence[Any] = ()
    """The rows as the origin gives them, a mapping for each. A column that a row leaves out is NULL."""
    file: str = field(default="", metadata={"path": True})
    """A file that the origin reads instead. The path is relative to the cases."""
    origin: str = ""
    """The origin that gives the rows, where a definition has several."""
    at: str = field(default="2000-01-01", metadata={"like": '"2026-01-31 06:00"'})
    """The time of the batch in UTC, which expressions know as `:batch_time`."""
    delivered: int | Sequence[Any] | Mapping[str, Any] | None = None
    """How many rows are delivered, or which. With several destinations it is a mapping by their names."""
    filtered: int | None = None
    """How many rows the stages filter for every destination."""
    refused: int | Sequence[Any] | None = None
    """How many rows are refused, or which: for each row some of `code`, `stage`, `message` and `row`."""
    fails: bool = False
    """Whether the batch as a whole fails an expectation."""

    def __post_init__(self) -> None:
        if bool(self.rows) == bool(self.file):
            raise ValueError(f"rows: expected rows or a file, got {'both' if self.file else 'neither'}")
        if self.delivered is self.filtered is self.refused is None and not self.fails:
            raise ValueError("delivered: expected at least one of delivered, filtered, refused and fails")
        for number, row in enumerate(self.rows, 1):
            if not isinstance(row, Mapping):
                raise ValueError(f"rows: expected a mapping for each row, got {row!r} as row {number}")
        for one in self.refused if isinstance(self.refused, Sequence) else ():
            if not isinstance(one, Mapping) or not one or not one.keys() <= _OF_REFUSED:
                raise ValueError(
                    f"refused: expected some of {', '.join(sorted(_OF_REFUSED))} for each row, got {one!r}"
                )
        for given in self.delivered.values() if isinstance(self.delivered, Mapping) else (self.delivered,):
            rows = given if isinstance(given, Sequence) and not isinstance(given, str) else ()
            if not (given is None or type(given) is int or isinstance(given, list | tuple)):
                raise ValueError(f"delivered: expected a number or rows, got {given!r}")
            if not all(isinstance(row, Mapping) for row in rows):
                raise ValueError("delivered: expected a mapping for each row")
        try:
            _ = self.time
        except ValueError as error:
            raise ValueError(f"at: expected a time such as 2026-01-31 06:00, got {self.at!r}") from error

    @property
    def time(self) -> datetime:
        """The time of the batch."""
        time = datetime.fromisoformat(self.at)
        return time.replace(tzinfo=time.tzinfo or timezone.utc).astimezone(timezone.utc)


_OF_REFUSED = {"code", "stage", "message", "row"}


@dataclass(frozen=True, kw_only=True)
class CaseFile:
    """The cases of one file."""

    cases: Sequence[Case]


def find_cases(definition: Path) -> Path:
    """Return the path of the file with a definition's cases."""
    return definition.with_name(definition.stem + CASES)


def load_cases(file: Path) -> Sequence[Case]:
    """Load the cases in a file. Raises `DefinitionError` with all problems of the file."""
    try:
        with file.open("rb") as opened:
            text = decode_text(opened.read(LARGEST + 1), file.name)
    except FileNotFoundError as error:
        hint = f"Write {file.name} beside the definition. The page `howto/test-a-pipeline.md` has an example."
        raise DefinitionError(str(file), [Problem(path="", message="there is no such file")], hint=hint) from error
    except OSError as error:
        raise DefinitionError(str(file), [Problem(path="", message=f"cannot be read: {error.strerror}")]) from error
    return _parse_cases(text, file)


def _parse_cases(text: str, file: Path) -> Sequence[Case]:
    reader = DefinitionReader(directory=file.absolute().parent, kinds=get_our_kinds())
    read = reader.read_dataclass(parse(text, file.name), CaseFile, "")
    problems = list(reader.problems)
    if not problems:
        names = [case.name for case in read.cases]
        twice = sorted({name for name in names if names.count(name) > 1})
        problems += [Problem(path="cases", message=f"the name {name!r} stands twice") for name in twice]
        problems += [] if names else [Problem(path="cases", message="expected at least one case")]
    if problems:
        raise DefinitionError(file.name, sorted(problems, key=lambda each: (each.line or 0, each.column or 0)))
    return tuple(read.cases)


def choose_cases(cases: Sequence[Case], names: Sequence[str]) -> Sequence[Case]:
    """Return the cases with these names, or all cases if no name is given. Raises `Refusal` for an unknown name."""
    known = [case.name for case in cases]
    for name in names:
        if name not in known:
            near = find_nearest(name, known)
            meant = f"did you mean {near!r}?" if near else f"there are: {', '.join(map(repr, known))}"
            raise Refusal(f"There is no case {name!r}; {meant}")
    return [case for case in cases if case.name in names] if names else cases


def watch_cases(
    cases: Path, folder: Path, named: Sequence[Path] = (), pause: Callable[[float], None] = time.sleep
) -> Iterator[Sequence[str]]:
    """Yield at once, and again after each change of files, with the names of the changed files.

    It watches this folder, the named files, and the files that the cases name. A change during the caller's work also
    counts.
    """
    changed: Sequence[str] = ()
    while True:
        watched = [cases, *named, *_list_fixtures(cases)]
        before = _look(folder, watched)
        yield changed
        changed = ()
        while not changed:
            began = time.monotonic()
            now = _look(folder, watched)
            changed = sorted({Path(name).name for name, _ in before.items() ^ now.items()})
            if not changed:
                pause(max(_EVERY, 10 * (time.monotonic() - began)))


_EVERY = 0.3
"""The seconds between two looks at the watched files. The pause is longer if a look takes long."""


def _list_fixtures(cases: Path) -> list[Path]:
    """Return the files that the cases name, or no file while the cases have errors."""
    with contextlib.suppress(DefinitionError):
        return [Path(case.file) for case in load_cases(cases) if case.file]
    return []


def _look(folder: Path, named: Sequence[Path]) -> Mapping[str, tuple[int, int]]:
    """Return the time of change and the size of each file on which the outcome of a case may depend."""
    found = []
    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name[0] not in "._" and not Path(here, name, "_delta_log").exists()]
        found += [Path(here, name) for name in files if name.endswith(_WATCHED)]
    for each in named:
        found += [each, *each.parent.glob(each.name)] if not each.is_dir() else each.rglob("*")
    moments = {}
    for file in found:
        with contextlib.suppress(OSError):  # the file was removed meanwhile
            known = file.stat()
            moments[str(file.absolute())] = known.st_mtime_ns, known.st_size
    return moments


_WATCHED = (".yaml", ".yml", ".py", ".sql", ".ddl", ".json", ".csv", ".txt", ".avsc", ".proto", ".desc")


def add_case(text: str, case: Case, note: str) -> str:
    """Return the text of a file with one more case at its end, below a comment. Raises `Refusal` if none fits."""
    if not text.strip():
        text = "cases:\n"
    indents = re.findall(r"^( *)- ", text[text.index("cases:") :] if "cases:" in text else "", re.MULTILINE)
    indent = indents[0] if indents else "  "
    body = "".join(f"{indent}{line}\n" for line in [f"# {note}", *_format_case(case)])
    whole = f"{text.rstrip()}\n{body}"
    with contextlib.suppress(DefinitionError):
        before = _parse_cases(text, Path("cases")) if indents else ()
        if len(_parse_cases(whole, Path("cases"))) == len(before) + 1:
            return whole
    raise Refusal(
        "The file cannot take another case.",
        hint="Write its cases below each other, each behind a dash; or name a file that does not exist yet.",
    )


def extend_cases(file: Path, cases: Sequence[Case], note: str) -> None:
    """Add these cases to the file, or make the file. A reader sees either the old file or the new file."""
    text = _read_cases(file)
    known = {case.name for case in load_cases(file)} if text.strip() else set()
    for case in cases:
        names = [case.name, *(f"{case.name} ({number})" for number in range(2, len(known) + 3))]
        case = replace(case, name=next(name for name in names if name not in known))
        known.add(case.name)
        text = add_case(text, case, note)
    if len(text.encode()) > LARGEST:
        raise Refusal(f"{file} would be larger than {LARGEST:,} bytes.", hint="Save fewer rows, or into another file.")
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, file)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise Refusal(f"{file} cannot be written: {error.strerror}.") from error


def check_extensible(file: Path) -> None:
    """Raises `Refusal` or `DefinitionError` if no case can be added to the file."""
    if not file.absolute().parent.is_dir():
        raise Refusal(f"{file} cannot be written: there is no folder {file.parent}.", hint="Make the folder first.")
    text = _read_cases(file)
    if text.strip():
        load_cases(file)
    add_case(text, Case(name="\0", rows=[{}], filtered=0), "")


def _read_cases(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(f"{file} cannot be read: {error}.") from error


def _format_case(case: Case) -> Iterator[str]:
    """Yield the case as lines of YAML."""
    yield f"- name: {_write(case.name)}"
    for name in ("origin", "at"):
        if getattr(case, name):
            yield f"  {name}: {_write(getattr(case, name))}"
    yield from _format_rows("  rows", case.rows)
    if isinstance(case.delivered, Mapping):
        yield "  delivered:"
        for name, rows in case.delivered.items():
            yield from _format_rows(f"    {_write_name(name)}", rows)
    elif case.delivered is not None:
        yield from _format_rows("  delivered", case.delivered)
    if case.filtered is not None:
        yield f"  filtered: {case.filtered}"
    if case.refused is not None:
        yield from _format_rows("  refused", case.refused)
    if case.fails:
        yield "  fails: true"


def _format_rows(heading: str, rows: int | Sequence[Any]) -> Iterator[str]:
    if isinstance(rows, int) or not rows:
        yield f"{heading}: {rows or 0}"
        return
    yield f"{heading}:"
    indent = " " * (len(heading) - len(heading.lstrip()) + 2)
    for row in rows:
        yield f"{indent}- {_write(row)}"


def _write(value: JSON) -> str:
    """Return the value as one line of YAML. JSON is YAML, except for characters that do not print."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_write_name(name)}: {_write(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_write, value)) + "]"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return "".join(char if char.isprintable() else _escape(ord(char)) for char in text)


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _write_name(name: str) -> str:
    """Return a name without quotes, unless YAML would read it as another value."""
    return name if re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) and name.lower() not in _WORDS else _write(name)


_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


@dataclass(frozen=True, kw_only=True)
class CaseOutcome:
    """The outcome of the rows of a case."""

    delivered: Mapping[str, Sequence[Mapping[str, JSON]]]
    """By destination, the rows that it gets. A column that is NULL may be left out."""
    columns: Mapping[str, Sequence[str]]
    """By destination, the columns of its rows."""
    filtered: int
    refused: Sequence[Mapping[str, JSON]]
    """`code`, `stage`, `message` and `row` of each refused row."""
    failures: Sequence[str] = ()
    """Why the whole batch fails, a line for each expectation."""


@dataclass(frozen=True, kw_only=True)
class CaseResult(JsonForm):
    """The result of a case."""

    case: str
    problems: Sequence[str]
    """A line for each difference from the expectation; empty if the case passed."""

    def json(self) -> dict[str, JSON]:
        return {**super().json(), "passed": not self.problems}


def compare(case: Case, outcome: CaseOutcome) -> CaseResult:
    """Compare the outcome with what the case expects."""
    return CaseResult(case=case.name, problems=tuple(_list_problems(case, outcome)))


def _list_problems(case: Case, outcome: CaseOutcome) -> Iterator[str]:
    if bool(outcome.failures) != case.fails:
        found = "; ".join(outcome.failures)
        yield f"the batch fails: {found}" if found else "expected the batch to fail, and it does not"
    names = list(outcome.delivered)
    if case.delivered is not None:
        given = case.delivered
        if not isinstance(given, Mapping):
            if len(names) > 1:
                yield f"delivered: there are several destinations; expected a mapping with {', '.join(names)}"
                return
            given = {names[0]: given}
        for name, expected in given.items():
            label = f"delivered to {name}" if len(names) > 1 else "delivered"
            if name not in outcome.delivered:
                yield f"delivered: there is no destination {name!r}; expected {', '.join(names)}"
            else:
                yield from _compare_rows(label, expected, outcome.delivered[name], outcome.columns[name])
    if case.filtered is not None and case.filtered != outcome.filtered:
        yield f"filtered: expected {case.filtered}, got {outcome.filtered}"
    if case.refused is not None:
        yield from _compare_rows("refused", case.refused, outcome.refused, sorted(_OF_REFUSED), parts=("message",))
    elif outcome.refused and case.delivered is not None:
        for row in outcome.refused:
            yield f"refused by {row['stage']}, and not expected: {row['message']}"


def _compare_rows(
    label: str,
    expected: Any,
    found: Sequence[Mapping[str, JSON]],
    columns: Sequence[str],
    *,
    parts: Collection[str] = (),
) -> Iterator[str]:
    """Yield what is wrong with these rows. Their order and unexpected columns do not count.

    A value of a column in `parts` need only contain the expected value.
    """
    if isinstance(expected, int):
        if expected != len(found):
            yield f"{label}: expected {expected}, got {len(found)}"
        return
    if len(expected) != len(found):
        yield f"{label}: expected {len(expected)}, got {len(found)}"
    missing, surplus = match_rows(expected, found, parts)
    for row in missing:
        nearest = min(surplus, key=lambda other: len(_list_differences(row, other, parts)), default=None)
        unknown = [name for name in row if name not in columns]
        if unknown:
            yield f"{label}: there is no column {unknown[0]!r}; there are {', '.join(columns)}"
        elif nearest is None:
            yield f"{label}: expected {_show(row)}, and there is no such row"
        else:
            surplus.remove(nearest)
            names = _list_differences(row, nearest, parts)
            wanted = ", ".join(f"{name} {_show(row[name])}" for name in names)
            got = ", ".join(_show(nearest.get(name)) for name in names)
            yield f"{label}: expected {wanted}, got {got} in {_show(nearest)}"
    for other in surplus if not missing or len(found) > len(expected) else ():
        yield f"{label}: not expected: {_show(other)}"


def match_rows(
    expected: Sequence[Mapping[str, JSON]], found: Sequence[Mapping[str, JSON]], parts: Collection[str] = ()
) -> tuple[list[Mapping[str, JSON]], list[Mapping[str, JSON]]]:
    """Return the expected rows without a match, and the found rows without a match.

    Each expected row may fit several found rows. As many expected rows as possible get one.
    """
    owner: dict[int, int] = {}

    def place(one: int, tried: set[int]) -> bool:
        for other, row in enumerate(found):
            if other not in tried and not _list_differences(expected[one], row, parts):
                tried.add(other)
                if other not in owner or place(owner[other], tried):
                    owner[other] = one
                    return True
        return False

    missing = [row for one, row in enumerate(expected) if not place(one, set())]
    return missing, [row for other, row in enumerate(found) if other not in owner]


def _list_differences(expected: Mapping[str, JSON], found: Mapping[str, JSON], parts: Collection[str]) -> list[str]:
    return [
        name
        for name, value in expected.items()
        if not (is_equal(value, found.get(name)) or (name in parts and str(value) in str(found[name])))
    ]


def is_equal(expected: JSON, found: JSON) -> bool:
    """Whether a value equals the expected value. Numbers and times may have another spelling."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        return all(is_equal(value, found.get(name)) for name, value in expected.items())
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        return len(expected) == len(found) and all(map(is_equal, expected, found))
    if isinstance(expected, bool) or isinstance(found, bool):
        return expected is found
    if isinstance(expected, int | float | Decimal) and isinstance(found, int | float | Decimal):
        try:
            return Decimal(str(expected)) == Decimal(str(found))
        except InvalidOperation:
            return False
    if isinstance(expected, str) and isinstance(found, str) and expected != found:
        return _read_time(expected) == _read_time(found) is not None
    return bool(expected == found)


def _read_time(text: str) -> datetime | None:
    """Return the time that the text gives, or None. A day alone is not a time."""
    try:
        time = datetime.fromisoformat(text) if len(text) > len("2026-01-31") else None
    except ValueError:
        return None
    return time and time.replace(tzinfo=time.tzinfo or timezone.utc)


def _show(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def format_results(results: Sequence[CaseResult], file: Path, seconds: float) -> str:
    """Return a line for each case, its problems below it, and how many cases passed."""
    lines = []
    for result in results:
        word = paint("FAILED", "red") if result.problems else "passed"
        lines += [f"{word}  {escape_line(result.case)}", *(f"        {escape_line(each)}" for each in result.problems)]
    failed = sum(1 for result in results if result.problems)
    counts = f"{len(results) - failed} passed" + (f", {failed} failed" if failed else "")
    return "\n".join([*lines, f"{file.name}: {counts} in {seconds:.1f} s"])
