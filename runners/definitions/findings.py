"""What a look at files found, in plain words and for a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from origins.batch import Json
from runners.definitions.look_at_files import Options
from runners.definitions.proposal import MOST_REFUSED, SPARE, WINDOW, Proposal, format_share, list_some

MOST_LINES = 14
"""So many lines say what was found."""
_FORMATS = {"csv": "CSV", "json": "JSON", "parquet": "parquet"}


def list_findings(proposal: Proposal) -> Sequence[str]:
    """All that was found, a line each."""
    described = (_describe_files, _describe_columns, _describe_values, _describe_rest)
    return [line for describe in described for line in describe(proposal)]


def summarise_findings(proposal: Proposal) -> Sequence[str]:
    """The findings on few lines; the last ones are more important than those in the middle."""
    found = list_findings(proposal)
    if len(found) <= MOST_LINES:
        return found
    rest = [*_describe_rest(proposal)]
    first = found[: MOST_LINES - len(rest) - 1]
    return [*first, f"{len(found) - len(first) - len(rest)} more: wherry init --json lists all.", *rest]


def collect_facts(proposal: Proposal) -> Mapping[str, Json]:
    """What was found, for a program."""
    look = proposal.look
    types = {**proposal.columns, **proposal.casts} or dict(proposal.widest)
    return {
        "files": look.files,
        "looked_at": len(look.heads),
        "format": look.format,
        "origins": [{"path": group.pattern, "options": dict(group.options)} for group in look.groups],
        "columns": {
            name: {"type": kind, "not_in": list(proposal.lacking.get(name, ()))} for name, kind in types.items()
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
    look, heads = proposal.look, proposal.heads
    some = "" if len(look.heads) + len(look.empty) + len(look.broken) == look.files else f"{len(look.heads):,} of "
    many = f"{some}{look.files:,} {_FORMATS[look.format]} {'file' if look.files == 1 else 'files'}"
    yield f"Looked at the head of {many}: {len(proposal.names)} {'column' if len(proposal.names) == 1 else 'columns'}."
    if len(look.groups) > 1:
        for group in look.groups[1:]:
            needs = _format_options(group.options) or "no options"
            yield f"{group.pattern} is an origin of its own ({needs}): {list_some(group.files)}."
        yield "A later file is read only if its name fits one of these patterns. Check them."
    odd: dict[str, list[str]] = {}
    for name, options in look.odd.items():
        odd.setdefault(_format_options(options) or "none", []).append(name)
    for needs, names in odd.items():
        yield f"{list_some(names)} would need other options ({needs}). No pattern fits only such files."
    if odd:
        yield "Move them to a folder of their own before the first run."
    if any(group.options.get("header") is False for group in look.groups):
        yield "The first line is no header. The columns are called _c0, _c1 and so on."
    for option, words in (("sep", "Fields are separated by {}."), ("encoding", "The text is encoded as {}.")):
        if option in look.groups[0].options:
            yield words.format(_name_separator(str(look.groups[0].options[option])))
    breaks = [name for name, head in heads.items() if head.breaks]
    if breaks:
        yield f"Quoted text goes over several lines in {list_some(breaks)}: multiLine reads it."
    elif look.format == "json" and any(group.options.get("multiLine") for group in look.groups):
        yield "Each file is one JSON value over several lines, or an array: multiLine reads it."
    marked = [name for name, head in heads.items() if head.has_mark]
    if marked:
        yield f"A byte order mark begins {list_some(marked)}. The reader passes over it."


def _describe_columns(proposal: Proposal) -> Iterator[str]:
    by_name: dict[tuple[str, ...], list[str]] = {}
    for name, files in proposal.lacking.items():
        by_name.setdefault(tuple(files), []).append(name)
    for files, names in by_name.items():
        if proposal.look.format != "json":
            where = f"{'is' if len(names) == 1 else 'are'} {proposal.say_where(files)}"
            yield f"{list_some(names)} {where}. Other rows have NULL there."
    orders = _find_other_orders(proposal) if proposal.look.format == "csv" else []
    if orders:
        yield f"The columns have another order in {list_some(orders)}. Wherry goes by their names."
    twice = [name for name, head in proposal.heads.items() if len(proposal.spelled[name]) < len(head.columns)]
    if twice and proposal.look.format != "json":
        yield f"A column is there twice in {list_some(twice)}. Correct the header: Wherry cannot read it."
    if proposal.has_nameless:
        yield "A column has no name. The definition leaves it out."
    if proposal.other_case:
        keys = list_some(proposal.other_case)
        yield f"Keys differ from columns only in case: {keys}. The column _rescued keeps them."
    if proposal.doubled:
        keep = proposal.on_change["doubled"] == "keep_last"
        what = "The last value is read, and the others are lost" if keep else "Such rows go to the DLQ"
        yield f"Objects have a key twice: {list_some(list(proposal.doubled))}. {what}."
    if proposal.other_types:
        yield f"Files differ in the type of {list_some(proposal.other_types)}. Values that do not fit go to the DLQ."


def _find_other_orders(proposal: Proposal) -> list[str]:
    place = {proposal.get_key(name): at for at, name in enumerate(proposal.names)}
    orders = {
        name: [place[proposal.get_key(column)] for column in head.columns if proposal.get_key(column) in place]
        for name, head in proposal.heads.items()
    }
    return [name for name, found in orders.items() if found != sorted(found)]


def _describe_values(proposal: Proposal) -> Iterator[str]:
    for words, kinds in (("a decimal comma", ("decimal(18,2)", "double")), ("days as 31.01.2026", ("date",))):
        found = {name: guess for name, guess in proposal.guesses.items() if guess.otherwise and guess.kind in kinds}
        files = [name for name in proposal.heads if any(name in guess.otherwise for guess in found.values())]
        if found:
            where = "All files have" if len(files) == len(proposal.heads) else f"{list_some(files)}:"
            yield f"{where} {words} in {list_some(list(found))}. The stage with_columns changes it for the cast."
    if any(guess.clear_sql(name) for name, guess in proposal.guesses.items()):
        yield "Files differ in the decimal sign. A number such as 1.234 is refused, since it may be 1234."
    unclear = [name for name, guess in proposal.guesses.items() if guess.has_both]
    if unclear:
        yield f"{list_some(unclear)} may be 1234 or 1.234, by the file, and stays text. Read such files apart."
    if proposal.bad_share:
        limit = f"A run stops when {proposal.threshold} of the last {WINDOW:,} rows were refused"
        yield f"About {format_share(proposal.bad_share)} of these rows do not look like the others. {limit}."
        yield "The DLQ gets those that Wherry cannot read or cast."
    if SPARE * proposal.bad_share * WINDOW > MOST_REFUSED:
        yield "That is much. Look at the reasons with wherry preview before the first run."


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
