"""A definition that is proposed for existing files: what it reads, what it changes in them, and why."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from origins.batch import Json
from origins.files.file_scan import read_folder_columns
from origins.files.heads import Head
from runners.definitions.file_columns import PLAIN, FileColumns
from runners.definitions.guess_types import Guess, guess_type, infer_json_type
from runners.definitions.look_at_files import Group, Look, Options, look_at_files
from runners.model.text import escape_line, format_count, join_some

WINDOW, _LEAST, MOST_REFUSED, SPARE = 1_000, 100, 500, 3
"""The DLQ's window, its usual and its highest threshold, and how many times the bad rows of the files it allows."""
_ENOUGH_ROWS = 200
"""From how many rows on one file can show its share of bad rows."""
_MOST_DOUBLED = 0.1
"""If a larger share of the objects has a key twice, they do not go to the DLQ."""
_LONGEST = 80


@dataclass(frozen=True)
class Proposal:
    """A first definition for files, and what a look at their heads shows."""

    look: Look

    @cached_property
    def seen(self) -> FileColumns:
        """The columns of the files."""
        return FileColumns(self.look)

    @cached_property
    def columns(self) -> Mapping[str, str]:
        """The columns of all files with the types that the reader gives them, which is text for CSV.

        It is empty for parquet, unless the files differ.
        """
        if self.look.format == "csv":
            return dict.fromkeys([*self.seen.names, *self.seen.folders], "string")
        if self.look.format == "json":
            rows = [row for head in self.seen.heads.values() for row in head.rows]
            kinds = {name: infer_json_type(row.get(name) for row in rows) for name in self.seen.names}
            known = {name: "string" if name in self.seen.mixed else kind for name, kind in kinds.items() if kind}
            return {**known, **dict.fromkeys(self.seen.folders, "string")} if known else {}
        return {**self.seen.widest, **dict.fromkeys(self.seen.folders, "string")} if self.seen.other_types else {}

    @cached_property
    def guesses(self) -> Mapping[str, Guess]:
        """For each text column: its guessed type, and how its values are written."""
        if self.look.format == "parquet":
            return {}
        groups = {name: at for at, group in enumerate(self.look.groups) for name in group.files}
        guesses = {}
        for column in (name for name, kind in self.columns.items() if kind == "string"):
            key = self.seen.get_key(column)
            values: dict[str, Sequence[object]] = {}
            for name, head in self.seen.heads.items():
                if column in self.seen.folders:
                    values[name] = [read_folder_columns(name).get(column.lower())]
                    continue
                own = self.seen.spellings[name].get(key)
                cells = [row.get(own) for row in head.rows] if own is not None else []
                values[name] = [*map(_as_text, cells)] if column in self.seen.mixed else cells
            guesses[column] = guess_type(values, groups)
        return guesses

    @property
    def casts(self) -> Mapping[str, str]:
        """The types that a cast gives to columns."""
        return {name: guess.kind for name, guess in self.guesses.items() if guess.kind}

    @property
    def bad_share(self) -> float:
        """The share of rows that the definition may refuse, in the file with most of them."""
        return self.bad_rows[0]

    @cached_property
    def bad_rows(self) -> tuple[float, str]:
        """The share of rows that the definition may refuse, and a description of the rows it is counted in."""
        lines, bad = 0, 0.0
        worst = 0.0, ""
        for name, head in self.seen.heads.items():
            misfits = sum(self._is_bad(row, head, name) for row in head.rows)
            share = misfits / len(head.rows) if head.rows else 0
            here = head.bad_lines + share * (head.lines - head.bad_lines)
            if self.on_change.get("doubled") == "nack":
                here += max(head.doubled.values(), default=0)
            lines, bad = lines + head.lines, bad + here
            if len(head.rows) >= _ENOUGH_ROWS:
                worst = max(worst, (here / head.lines, f"the first {head.lines:,} rows of {list_some([name])}"))
        several = f"the heads of {len(self.seen.heads):,} files" if len(self.seen.heads) > 1 else "the head of the file"
        return max(worst, (bad / lines if lines else 0, f"the {lines:,} rows in {several}"))

    @cached_property
    def threshold(self) -> int:
        """How many refused rows of the window stop a run. It is more than what the files show."""
        wanted = math.ceil(round(SPARE * self.bad_share * WINDOW / 50, 6)) * 50
        return min(max(_LEAST, wanted), MOST_REFUSED)

    @cached_property
    def on_change(self) -> Mapping[str, str]:
        """The policies for the differences between the files."""
        look = self.look
        if look.format == "parquet":
            differs = {"extra": "evolve", "missing": "evolve"} if self.seen.lacking else {}
            return {**differs, "wider": "nack", "other": "nack"} if self.seen.other_types else differs
        if look.format == "csv":
            if any(group.options.get("header") is False for group in look.groups):
                return {}
            if self.seen.has_nameless:
                return {"extra": "ignore", "missing": "evolve" if self.seen.lacking else "stop"}
            seen = len(self.seen.heads) + len(look.empty) == look.files
            return dict.fromkeys(("extra", "missing"), "stop" if seen and not self.seen.lacking else "evolve")
        policies = {"extra": "evolve"}
        if self.seen.other_case:
            policies["other"] = "rescue"
        if self.seen.doubled_keys:
            lines = sum(head.lines for head in self.seen.heads.values())
            often = max(self.seen.doubled_keys.values()) > _MOST_DOUBLED * max(1, lines)
            policies["doubled"] = "keep_last" if often else "nack"
        return policies

    def write_definition(self, directory: Path, name: str) -> str:
        """Return the definition in `directory` that carries the files to a table of this name."""
        several = len(self.look.groups) > 1
        lines = [f"name: {name}", "origins:" if several else "origin:"]
        for at, group in enumerate(self.look.groups):
            body = [*self._write_origin(group, directory)]
            if several:
                stages = [*self._write_puts(group)]
                body = [f"- {body[0]}", *(f"  {line}" for line in body[1:]), f"  name: part_{at + 1}"]
                body += ["  stages:", *(f"    {line}" for line in stages)] if stages else []
            lines += [f"  {line}" for line in body]
        stages = [*(() if several else self._write_puts(self.look.groups[0])), *self._write_cast()]
        lines += ["stages:", *(f"  {line}" for line in stages)] if stages else []
        lines += ["destinations:", f"  - delta: {{path: tables/{name}}}"]
        limit = f"stops when {self.threshold} of the last {WINDOW} rows were refused"
        lines.append(f"dlq: {{window: {WINDOW}, threshold: {self.threshold}}}  # {limit}")
        if self.bad_share:
            share, rows = self.bad_rows
            lines.append(f"# About {format_share(share)} of {rows} look bad.")
        return "\n".join(lines) + "\n"

    def _is_bad(self, row: Mapping[str, Json], head: Head, file: str) -> bool:
        for name, cell in row.items():
            value = _as_text(cell) if name in self.seen.mixed else cell
            if isinstance(value, str):
                guess = self._guesses_by_key.get(self.seen.get_key(name), Guess())
                if guess.kind and value.strip() and not guess.fits(value.strip(), file):
                    return True
            elif value is not None and self.columns.get(name) in ("boolean", "bigint", "double"):
                kind = infer_json_type([value])
                if kind != self.columns[name] and (kind, self.columns[name]) != ("bigint", "double"):
                    return True
        return False

    @cached_property
    def _guesses_by_key(self) -> Mapping[str, Guess]:
        return {self.seen.get_key(name): guess for name, guess in self.guesses.items()}

    def _write_origin(self, group: Group, directory: Path) -> Iterator[str]:
        look = self.look
        path = os.path.relpath(look.place, directory)
        if group.pattern:
            path = os.path.join(re.sub(r"([*?\[])", r"[\1]", path), group.pattern)
        yield "files:"
        yield f"  path: {_quote(path)}"
        yield f"  format: {look.format}"
        if group.exclude:
            yield f"  exclude: {json.dumps(group.exclude, ensure_ascii=False)}  # they cannot be read like the others"
        if group.options:
            why = "; ".join(self._explain_options(group))
            yield f"  options: {_format_flow(group.options)}{f'  # {why}' if why else ''}"
        if self.columns:
            why = (
                "; text where some values differ: `cast` gives the type"
                if self.seen.mixed.intersection(self.casts)
                else ""
            )
            yield f"  schema:  # {_SCHEMAS[look.format]}{why}"
            for name, kind in self.columns.items():
                files = () if look.format == "json" else self.seen.lacking.get(name, ())
                note = f"  # {_say_where(self.seen, files, 2)}" if files else ""
                yield f"    {_quote_name(name)}: {_quote_type(kind)}{note}"
        if self.on_change:
            why = "; ".join(_POLICIES[pair] for pair in self.on_change.items() if pair in _POLICIES)
            yield f"  on_change: {_format_flow(self.on_change)}  # {why}"
        if "file_name" not in map(self.seen.get_key, self.seen.names):
            yield f"  metadata: [file_name]  # {_FILE_NAME}"

    def _explain_options(self, group: Group) -> Iterator[str]:
        if "header" in group.options:
            yield "the first line is no header; give the columns names with `rename`"
        if "encoding" in group.options:
            yield "the files are not UTF-8"
        if "multiLine" in group.options:
            breaks = any(self.look.heads[name].breaks for name in group.files)
            is_json = self.look.format == "json"
            yield _WHOLE if is_json else "quoted text goes over several lines" if breaks else "UTF-16 needs multiLine"

    def _write_puts(self, group: Group) -> Iterator[str]:
        mine = {name: guess for name, guess in self.guesses.items() if guess.otherwise.intersection(group.files)}
        clear = {name: sql for name, guess in mine.items() if (sql := guess.clear_sql(name))}
        if clear:
            yield "- require:  # refuses 1.234, which may be 1234 or 1.234, since files differ in the decimal sign"
            for at, (name, sql) in enumerate(clear.items(), 1):
                rule = name if re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) else f"column_{at}"
                yield f"    clear_{rule}: {_quote(sql)}"
        puts = {name: guess.put_sql(name) for name, guess in mine.items()}
        if puts:
            yield "- with_columns:  # from 1.234,56 and 31.01.2026"
            yield from (f"    {_quote_name(name)}: {_quote(sql)}" for name, sql in puts.items())

    def _write_cast(self) -> Iterator[str]:
        if self.casts:
            yield "- cast:  # refuses other values; rounds numbers and cuts times that are more exact"
            yield from (f"    {_quote_name(name)}: {_quote_type(kind)}" for name, kind in self.casts.items())


def propose(place: Path) -> Proposal:
    """Propose a first definition for a file or a folder of files.

    Raise `Refusal` if no name has the ending of a known format.
    """
    return Proposal(look_at_files(place))


_SCHEMAS = {
    "csv": "as text; `cast` below gives the types",
    "json": "what the first objects have",
    "parquet": "the widest type that a file has",
}
_FILE_NAME = "`wherry redo` needs it, if a file is edited later"
_WHOLE = "each file is one JSON value"
_POLICIES = {
    ("extra", "evolve"): "a new column comes into the table",
    ("extra", "ignore"): "columns that the schema does not name are left out",
    ("extra", "stop"): "a file with other columns stops the run; `evolve` accepts it",
    ("missing", "evolve"): "a missing one is NULL",
    ("other", "rescue"): "a key in other letters is kept in _rescued",
    ("other", "nack"): "values of another type go to the DLQ",
    ("doubled", "nack"): "a key that is there twice refuses its row; `keep_last` loses its first value",
    ("doubled", "keep_last"): "of a key that is there twice, the first value is lost; `nack` refuses the row",
}


def _as_text(value: Json) -> Json:
    """Return a number or a boolean of JSON as a reader of text gives it."""
    return json.dumps(value) if type(value) in PLAIN else value


def _say_where(seen: FileColumns, lacking: Sequence[str], most: int = 3) -> str:
    """Describe which files have a column that these files lack."""
    without = set(lacking)
    having = [name for name, there in seen.spellings.items() if there and name not in without]
    few = len(having) <= len(lacking)
    return f"only in {list_some(having, most)}" if few else f"not in {list_some(lacking, most)}"


def format_share(share: float) -> str:
    """Format a share for a person."""
    return f"{100 * share:.0f} %" if share >= 0.01 else "1 % or less"


def list_some(names: Iterable[str], most: int = 3) -> str:
    """Return the first of these names, on one line."""
    short = (name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in names)
    return join_some([*map(escape_line, short)], most)


def _format_flow(values: Options) -> str:
    texts = {
        name: json.dumps(value) if isinstance(value, bool) else _quote_type(value) for name, value in values.items()
    }
    return f"{{{', '.join(f'{name}: {text}' for name, text in texts.items())}}}"


def _quote_name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) and name.lower() not in _WORDS else _quote(name)


_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
"""Words that YAML takes for other values."""


def _quote_type(text: str) -> str:
    return text if re.fullmatch(r"[a-z_]+", text) else _quote(text)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("${", "$${")


MOST_LINES = 14
"""How many lines describe the findings at most."""
_FORMATS = {"csv": "CSV", "json": "JSON", "parquet": "parquet"}


def list_findings(proposal: Proposal) -> Sequence[str]:
    """Return all findings, one line each."""
    described = (_describe_files, _describe_columns, _describe_values, _describe_rest)
    return [line for describe in described for line in describe(proposal)]


def summarise_findings(proposal: Proposal) -> Sequence[str]:
    """Return the findings on few lines. The last findings are more important than those in the middle."""
    findings = list_findings(proposal)
    if len(findings) <= MOST_LINES:
        return findings
    rest = [*_describe_rest(proposal)]
    first = findings[: MOST_LINES - len(rest) - 1]
    return [*first, f"{len(findings) - len(first) - len(rest)} more: wherry init --json lists all.", *rest]


def collect_facts(proposal: Proposal) -> Mapping[str, Json]:
    """Return the findings for a program."""
    look = proposal.look
    types = {**proposal.columns, **proposal.casts} or dict(proposal.seen.widest)
    return {
        "files": look.files,
        "looked_at": len(look.heads),
        "format": look.format,
        "origins": [{"path": group.pattern, "options": dict(group.options)} for group in look.groups],
        "columns": {
            name: {"type": kind, "not_in": list(proposal.seen.lacking.get(name, ()))} for name, kind in types.items()
        },
        "on_change": dict(proposal.on_change),
        "bad_share": round(proposal.bad_share, 4),
        "empty": list(look.empty),
        "broken": dict(look.broken),
        "need_other_options": {name: dict(options) for name, options in look.odd.items()},
        "left_out": dict(look.left_out),
        "says": list(list_findings(proposal)),
    }


def _describe_files(proposal: Proposal) -> Iterator[str]:
    look, heads = proposal.look, proposal.seen.heads
    some = "" if len(look.heads) + len(look.empty) + len(look.broken) == look.files else f"{len(look.heads):,} of "
    many = f"{some}{look.files:,} {_FORMATS[look.format]} {'file' if look.files == 1 else 'files'}"
    columns = format_count(len(proposal.seen.names), "column", "columns")
    yield f"Looked at the head of {many}: {columns}."
    if len(look.groups) > 1:
        for group in look.groups[1:]:
            needs = _format_options(group.options) or "no options"
            yield f"{list_some(group.files)}: an origin of its own ({needs})."
        yield f"{look.groups[0].pattern} takes all other files, also later ones."
    odd: dict[str, list[str]] = {}
    for name, options in look.odd.items():
        odd.setdefault(_format_options(options) or "none", []).append(name)
    for needs, names in odd.items():
        yield f"{list_some(names)} would need other options ({needs}). No pattern fits only such files."
    if odd:
        yield "The definition leaves them out. Move them to a folder of their own, and add an origin for it."
    if any(group.options.get("header") is False for group in look.groups):
        yield "The first line is no header. The columns are called _c0, _c1 and so on."
    for option, words in (("sep", "Fields are separated by {}."), ("encoding", "The text is encoded as {}.")):
        if option in look.groups[0].options:
            yield words.format(_name_separator(str(look.groups[0].options[option])))
    breaks = [name for name, head in heads.items() if head.breaks]
    if breaks:
        yield f"Quoted text goes over several lines in {list_some(breaks)}: multiLine reads it."
    elif look.format == "json" and look.groups[0].options.get("multiLine"):
        yield "Each file is one JSON value, such as an array: multiLine reads it."
    marked = [name for name, head in heads.items() if head.has_mark]
    if marked:
        yield f"A byte order mark begins {list_some(marked)}. The reader passes over it."


def _describe_columns(proposal: Proposal) -> Iterator[str]:
    seen, is_json = proposal.seen, proposal.look.format == "json"
    by_name: dict[tuple[str, ...], list[str]] = {}
    for name, files in seen.lacking.items():
        by_name.setdefault(tuple(files), []).append(name)
    for files, names in by_name.items():
        if not is_json:
            where = f"{'is' if len(names) == 1 else 'are'} {_say_where(seen, files)}"
            yield f"{list_some(names)} {where}. Other rows have NULL there."
    orders = _find_other_orders(seen) if proposal.look.format == "csv" else []
    if orders:
        yield f"The columns have another order in {list_some(orders)}. Wherry goes by their names."
    twice = [name for name, head in seen.heads.items() if len(seen.spellings[name]) < len(head.columns)]
    if twice and not is_json:
        yield f"A column is there twice in {list_some(twice)}. Correct the header: Wherry cannot read it."
    if seen.has_nameless:
        yield "A column has no name. The definition leaves it out."
    if seen.other_case:
        keys = list_some(seen.other_case)
        yield f"Keys differ from columns only in case: {keys}. The column _rescued keeps them."
    if seen.doubled_keys:
        keep = proposal.on_change["doubled"] == "keep_last"
        what = "The last value is read, and the others are lost" if keep else "Such rows go to the DLQ"
        yield f"Objects have a key twice: {list_some(list(seen.doubled_keys))}. {what}."
    if seen.other_types:
        yield f"Files differ in the type of {list_some(seen.other_types)}. Values that do not fit go to the DLQ."


def _find_other_orders(seen: FileColumns) -> list[str]:
    place = {seen.get_key(name): at for at, name in enumerate(seen.names)}
    orders = {
        name: [place[seen.get_key(column)] for column in head.columns if seen.get_key(column) in place]
        for name, head in seen.heads.items()
    }
    return [name for name, places in orders.items() if places != sorted(places)]


def _describe_values(proposal: Proposal) -> Iterator[str]:
    for words, kinds in (("a decimal comma", ("decimal(18,2)", "double")), ("days as 31.01.2026", ("date",))):
        guesses = {name: guess for name, guess in proposal.guesses.items() if guess.otherwise and guess.kind in kinds}
        files = [name for name in proposal.seen.heads if any(name in guess.otherwise for guess in guesses.values())]
        if guesses:
            where = "All files have" if len(files) == len(proposal.seen.heads) else f"{list_some(files)}:"
            yield f"{where} {words} in {list_some(list(guesses))}. The stage with_columns changes it for the cast."
    if any(guess.clear_sql(name) for name, guess in proposal.guesses.items()):
        yield "Files differ in the decimal sign. A number such as 1.234 is refused, since it may be 1234."
    unclear = [name for name, guess in proposal.guesses.items() if guess.has_both]
    if unclear:
        yield f"{list_some(unclear)} may be 1234 or 1.234, by the file, and stays text. Read such files apart."
    if proposal.bad_share:
        limit = f"A run stops when {proposal.threshold} of the last {WINDOW:,} rows were refused"
        share, rows = proposal.bad_rows
        yield f"About {format_share(share)} of {rows} do not look like the others. {limit}."
        yield "The DLQ gets those that Wherry cannot read or cast."
    if SPARE * proposal.bad_share * WINDOW > MOST_REFUSED:
        yield "That is a large share. Look at the reasons with wherry preview before the first run."


def _describe_rest(proposal: Proposal) -> Iterator[str]:
    look = proposal.look
    if look.format != "parquet" and not proposal.columns:
        yield "Wherry found no column with a value, so the definition has no schema."
        yield "Add a file with rows, delete the definition, and type the command again. Or add a `schema` to it."
    if look.empty:
        yield f"Empty: {list_some(look.empty)}."
    if look.broken:
        why = next(iter(look.broken.values()))
        yield f"Cannot be read, and would fail a run: {list_some(list(look.broken))} ({why})."
    if look.left_out:
        named = [f"{name} ({why})" for name, why in look.left_out.items()]
        yield f"The definition leaves out: {list_some(named, 6)}."


def _format_options(options: Options) -> str:
    return ", ".join(f"{name}: {_name_separator(str(value))}" for name, value in options.items())


def _name_separator(text: str) -> str:
    return {";": "semicolons", "\t": "tabs", "|": "vertical bars"}.get(text, text)
