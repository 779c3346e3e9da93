"""What a definition that comes over the network may say: a list of kinds, options, words and places.

Everything else is refused, with its line. So a new kind or option is refused until it is added here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any

from runners.definitions.document import DefinitionError, Fields, Items, Node, Problem, Scalar, join_key, parse
from runners.definitions.parameters import Parameters
from runners.model.errors import Refusal
from runners.model.text import shorten
from runners.service.operation import Invalid

_NAME = re.compile(r"[a-z0-9_][a-z0-9_-]{0,99}")
"""The name of a pipeline whose definition comes over the network."""
_TAKEN = ("server", "schedule")
"""The names of what the server itself keeps beside the states of pipelines."""
_MOST_ENTRIES = 100_000
"""How many entries of folders are searched for links."""
_LONGEST = 4_000
"""How many characters a value may have."""

_TEXT, _NAMES, _SIGN, _COUNT, _PLACE, _PATTERN = "text", "names", "sign", "count", "place", "pattern"
_STAGE: Mapping[str, Any] = {
    **dict.fromkeys(("name", "on_error", "when", "with_columns", "select", "rename", "drop", "cast"), _TEXT),
    **dict.fromkeys(("require", "filter"), _TEXT),
    "flatten": dict.fromkeys(("columns", "separator", "depth"), _TEXT),
    "mask": {"columns": _TEXT},
    "deduplicate": {"keys": _TEXT, "sequence_by": _TEXT},
}
_STAGES = [_STAGE]
_ORIGIN: Mapping[str, Any] = {
    **dict.fromkeys(("name", "read", "batch"), _TEXT),
    "lanes": _COUNT,
    "stages": _STAGES,
    "files": {
        "path": _PATTERN,
        **dict.fromkeys(("format", "schema", "on_change", "max_files", "min_age", "metadata"), _TEXT),
        "exclude": _NAMES,
        "options": {
            **dict.fromkeys(("header", "multiLine", "nullValue", "dateFormat", "timestampFormat"), _TEXT),
            "sep": _SIGN,
        },
    },
    "delta": {
        "path": _PLACE,
        **dict.fromkeys(("starting_version", "changes", "preimages", "on_rewrite"), _TEXT),
    },
    "generate": dict.fromkeys(("rows", "seed", "bad"), _TEXT),
}
_DESTINATION: Mapping[str, Any] = {
    **dict.fromkeys(("name", "was"), _TEXT),
    "stages": _STAGES,
    "delta": {
        "path": _PLACE,
        **dict.fromkeys(("mode", "keys", "sequence_by", "apply_as_deletes", "except_column_list"), _TEXT),
        **dict.fromkeys(("partition_by", "cluster_by", "optimize"), _TEXT),
    },
    "files": {
        "path": _PLACE,
        **dict.fromkeys(("format", "partition_by", "files_per_batch", "manifest"), _TEXT),
    },
    "discard": {},
}
_DEFINITION: Mapping[str, Any] = {
    **dict.fromkeys(("name", "delivery", "keep_filtered", "protect"), _TEXT),
    "origin": _ORIGIN,
    "origins": [_ORIGIN],
    "stages": _STAGES,
    "destinations": [_DESTINATION],
    "dlq": dict.fromkeys(("window", "threshold", "limits", "retain", "budget", "original"), _TEXT),
    "run": {
        **dict.fromkeys(("runners", "max_in_flight"), _COUNT),
        **dict.fromkeys(("drain", "poll", "idle", "time_zone", "history", "snapshot", "group"), _TEXT),
        "batch": dict.fromkeys(("rows", "bytes", "files", "wait"), _TEXT),
        "retry": dict.fromkeys(("attempts", "wait", "most", "within"), _TEXT),
    },
    "schedule": dict.fromkeys(("cron", "every", "after", "time_zone", "on_overlap", "catch_up", "jitter"), _TEXT),
}
"""The options that a definition may have: text, a number, a place, a pattern, options inside, or a list of these."""

_PLAIN = re.compile(r"(?:[A-Za-z0-9_ \t\n=!<>+*/%|(),.:@?\[\]-]|'[^'\\\n]*')*")
_QUOTED = re.compile(r"'[^']*'")
_COMMENT = re.compile(r"--|/\*")
_CALLED = re.compile(r"(?<![A-Za-z0-9_.])([A-Za-z0-9_.]+)[ \t\n]*\(")
_SMALL = re.compile(r"[0-9]{1,3}|1000|[^0-9]*")
"""A number up to 1,000, or a word."""
_WORD = re.compile(r"[A-Za-z0-9_]+")
_FUNCTIONS = """
abs ceil floor round coalesce nullif ifnull nvl if greatest least isnull isnotnull length lower upper trim ltrim rtrim
substring substr left right concat replace cast try_cast date to_date to_timestamp date_add date_sub datediff year month
day hour minute second sha2 md5 decimal varchar char struct
and or not in between like then when else is case
"""
"""The words that may stand before a bracket. Those of the last line are no functions."""
_QUERIES = """
select from with table values map reduce transform using exists lateral describe union intersect except join
rlike regexp regexp_like default generated
"""
"""The words of queries, and of what takes a pattern or another expression. No definition and no parameter has them."""
_ALLOWED, _FORBIDDEN = frozenset(_FUNCTIONS.split()), frozenset(_QUERIES.split())
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,199}")
_PART = re.compile(r"[A-Za-z0-9_=+, -][A-Za-z0-9_=+,. -]*")
_WILD_PART = re.compile(r"[A-Za-z0-9_=+,*? -][A-Za-z0-9_=+,.*? -]*")
_URL = re.compile(r"([a-z][a-z0-9+-]*://[A-Za-z0-9._@-]+)((?:/[^/?#%]+)*)/?")
_REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-[^${}]*)?\}", re.ASCII)
_VALUE = re.compile(r"(?=.{1,100}\Z)[A-Za-z0-9]+(?:[_.:+-][A-Za-z0-9]+)*")
"""A value that a caller gives to a parameter. It has no `/`, no quote, no space, and no two signs in a row."""


@dataclass(frozen=True, kw_only=True)
class DefinitionRules:
    """What the owner of a server allows to definitions and parameters that come over the network."""

    folder: Path
    """The folder that the server serves."""
    roots: Sequence[str] = ()
    """The folders and URLs below which a definition may name places. Without any, definitions are refused."""
    parameters: Collection[str] = ()
    """The names `${NAME}` that a definition may have, and that a caller may give values to."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The values that the server itself gives to names."""

    def __post_init__(self) -> None:
        for root in self.roots:
            if "://" in root and not _URL.fullmatch(root):
                raise Refusal(
                    f"{shorten(root)} is no root for definitions.",
                    hint="Name a folder, or a URL such as s3://bucket/folder without a password, a port and a query.",
                )

    def check(self, text: str, pipeline: str, parameters: Mapping[str, str] = MappingProxyType({})) -> None:
        """Raise `DefinitionError` with everything that is refused, and `Refusal` if the server takes no definitions.

        It is checked with these parameters, and with any other word in place of each.
        """
        if not self.roots:
            raise Refusal(
                "This server takes no definitions.",
                hint="Its owner can name places for them:  wherry serve DIR --definition-root PATH_OR_URL",
            )
        self.check_name(pipeline)
        file = f"{pipeline}.yaml"
        node = parse(text, file)
        _raise(file, [*self._check_references(node, "")])
        given = {name: value for name, value in {**self.variables, **parameters}.items() if name in self.parameters}
        words, places = dict.fromkeys(self.parameters, "x"), dict[Path, Problem]()
        around = {name: os.environ[name] for name in self.parameters if name in os.environ}
        for values, environment in ((given, around), ({**words, **given}, {}), (words, {})):
            filler = Parameters(variables=values, environment=environment)
            filled = filler.put_in(node)
            _raise(file, filler.problems)
            _raise(file, [*self._check_node(filled, _DEFINITION, "", places)])
            name = filled.fields.get("name") if isinstance(filled, Fields) else None
            if not isinstance(name, Scalar) or name.text != pipeline:
                _raise(file, [_refuse(name or node, "name", f"expected the name {pipeline}, as the request has it")])
        _raise(file, self._check_links(places))

    def could_send(self, text: str, pipeline: str, parameters: Collection[str]) -> bool:
        """Whether a caller could have sent this definition, if these parameters had harmless values."""
        try:
            if self.roots:
                self.check(text, pipeline, dict.fromkeys(parameters, "x"))
        except (DefinitionError, Invalid):
            return False
        return bool(self.roots)

    def check_name(self, pipeline: str) -> None:
        """Raise `Invalid` for a name that a pipeline of a caller cannot have."""
        if not _NAME.fullmatch(pipeline) or pipeline in _TAKEN:
            raise Invalid(f"pipeline: expected at most 100 of a-z, 0-9, _ and -, not {' or '.join(_TAKEN)}.")

    def check_parameters(self, given: Mapping[str, str], text: str) -> None:
        """Raise `Invalid` for a parameter that the owner does not allow or the definition does not have."""
        for name, value in given.items():
            if name not in self.parameters:
                raise Invalid(
                    f"parameters: {shorten(name)} is no parameter that a caller may set.",
                    hint="The owner of the server can allow it:  wherry serve DIR --allow-parameter NAME",
                )
            if name not in (found.group(1) for found in _REFERENCE.finditer(text)):
                raise Invalid(f"parameters: the definition has no ${{{name}}}.")
            if not _VALUE.fullmatch(value) or not _FORBIDDEN.isdisjoint(_WORD.findall(value.lower())):
                raise Invalid(
                    f"parameters: {name} takes at most 100 letters, digits and single . _ : + -, and no word of SQL."
                )

    def _check_references(self, node: Node, path: str) -> Iterator[Problem]:
        if isinstance(node, Fields):
            for key, inner in node.fields.items():
                yield from self._check_references(inner, join_key(path, key))
        elif isinstance(node, Items):
            for at, item in enumerate(node.items):
                yield from self._check_references(item, f"{path}[{at}]")
        elif "${" in _REFERENCE.sub(lambda found: "" if found.group(1) in self.parameters else "${", node.text):
            allowed = ", ".join(sorted(self.parameters)) or "none"
            message = (
                f"a definition from the network has no secret, and only parameters that the server allows: {allowed}"
            )
            yield _refuse(node, path, message)

    def _check_node(self, node: Node, rule: Any, path: str, places: dict[Path, Problem]) -> Iterator[Problem]:
        """Yield what is refused. Add the folders and files of the definition to `places`."""
        rule = rule[0] if isinstance(rule, list) else rule
        if isinstance(node, Items):
            for at, item in enumerate(node.items):
                yield from self._check_node(item, rule, f"{path}[{at}]", places)
        elif isinstance(node, Fields):
            for key, value in node.fields.items():
                below, where = join_key(path, key), node.keys.get(key, node)
                why = below != "dlq.retain.default" and _check_text(key)
                if isinstance(rule, Mapping) and key in rule:
                    yield from self._check_node(value, rule[key], below, places)
                elif isinstance(rule, Mapping):
                    yield _refuse(where, below, "a definition from the network may not have this")
                elif rule != _TEXT or key == "file" or not _KEY.fullmatch(key) or why:
                    yield _refuse(where, below, "a definition from the network may not have this name here")
                else:
                    yield from self._check_node(value, rule, below, places)
        elif why := self._check_value(node, rule, path, places):
            yield _refuse(node, path, why)

    def _check_value(self, node: Scalar, rule: Any, path: str, places: dict[Path, Problem]) -> str:
        """Return why a value is refused, or an empty text."""
        if len(node.text) > _LONGEST:
            return f"expected at most {_LONGEST:,} characters"
        if rule in (_PLACE, _PATTERN):
            place, why = self._check_place(node.text, rule)
            if place is not None and not why:
                places.setdefault(place, _refuse(node, path, self._say_where()))
            return why
        if rule == _COUNT and not _SMALL.fullmatch(node.text):
            return "expected a number up to 1,000"
        if rule == _SIGN and len(node.text) == 1 and node.text.isprintable():
            return ""
        return _check_text(node.text, sql=rule != _NAMES)

    def _check_place(self, text: str, rule: str) -> tuple[Path | None, str]:
        """Return the place on this machine, if it is one, and why it is refused: an empty text if it is below a root.

        The place of a pattern is the folder that has all files which the pattern can find.
        """
        url = _URL.fullmatch(text)
        parts = (url.group(2) if url else text.removesuffix("/")).removeprefix("/").split("/")
        for part in parts:
            if not (_WILD_PART if rule == _PATTERN else _PART).fullmatch(part):
                return None, f"a place from the network may not have the part {shorten(part)}"
        if url:
            below = any(_is_below_url(url.group(1), parts, root) for root in self.roots if "://" in root)
            return None, "" if below else self._say_where()
        wild = rule == _PATTERN
        place = Path(self.folder, *takewhile(lambda part: not (wild and re.search(r"[*?]", part)), Path(text).parts))
        return place, "" if self._is_allowed(place) else self._say_where()

    def _say_where(self) -> str:
        return f"expected a place below {' or '.join(self.roots)}, outside of links and states"

    def _check_links(self, places: Mapping[Path, Problem]) -> Sequence[Problem]:
        """Return what is refused because a link leads out of the roots, at or below a place or where a link leads to.

        Raise `Refusal` if there are too many entries to be searched.
        """
        waiting, seen, count = [*places.items()], set[Path](), 0
        while waiting:
            place, problem = waiting.pop()
            if place.resolve() in seen:
                continue
            seen.add(place.resolve())
            for at, folders, files in os.walk(place.resolve()):
                count += len(folders) + len(files)
                if count > _MOST_ENTRIES:
                    raise Refusal(
                        f"The places of the definition have more than {_MOST_ENTRIES:,} entries, so they are not "
                        f"searched for links; the last was {place}.",
                        hint="Name smaller folders in the definition.",
                    )
                links = [link for link in (Path(at, name) for name in (*folders, *files)) if link.is_symlink()]
                if not all(map(self._is_allowed, links)):
                    return [problem]
                waiting += [(link, problem) for link in links]
        return []

    def _is_allowed(self, place: Path) -> bool:
        """Whether a place is below a root once all links are followed, and apart from the states and the tokens."""
        try:
            found, state = place.resolve(), (self.folder / ".wherry").resolve()
        except (OSError, RuntimeError):  # links in a circle
            return False
        apart = not found.is_relative_to(state) and not state.is_relative_to(found)
        return apart and any(
            found.is_relative_to((self.folder / root).resolve()) for root in self.roots if "://" not in root
        )


def _is_below_url(authority: str, parts: Sequence[str], root: str) -> bool:
    known = _URL.fullmatch(root)
    above = known.group(2).split("/")[1:] if known else []
    return known is not None and known.group(1) == authority and [*parts[: len(above)]] == above


def _check_text(text: str, *, sql: bool = True) -> str:
    """Return why a text is refused. An empty text for words, numbers, operators and known functions."""
    if not _PLAIN.fullmatch(text):
        return "expected letters, digits, operators and texts in single quotes"
    plain = _QUOTED.sub("''", text)
    if sql and _COMMENT.search(plain):
        return "expected no comment of SQL"
    for word in _WORD.findall(plain):
        if word.lower() in _FORBIDDEN:
            return f"a definition from the network may not have the word {shorten(word)}"
    for word in _CALLED.findall(plain):
        if word.lower() not in _ALLOWED:
            return f"a definition from the network may not call {shorten(word)}"
    return ""


def _refuse(node: Node, path: str, message: str) -> Problem:
    return Problem(path=path, message=message, line=node.line, column=node.column)


def _raise(file: str, problems: Sequence[Problem]) -> None:
    if problems:
        raise DefinitionError(file, sorted(problems, key=lambda each: (each.line or 0, each.column or 0)))
