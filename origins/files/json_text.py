"""SQL over the text of JSON: text after its value, keys that are not in a schema, and lines that are refused.

Spark's parser stops after the value on a line, and never reads the rest. A line whose first closing brace is its last
character is clean. A pattern recognizes most of the others. The rest is parsed again, inside brackets that any text
after the value would break.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from origins.files.bad_lines import as_map, join_conditions
from origins.files.changes import Changes
from origins.files.options import is_whole
from origins.lazy import T
from origins.names import escape_name, quote_name, quote_text
from origins.schema import walk_types

_NONE = "cast(array() as array<string>)"
_MAP = quote_text("map<string,string>")


_DEEPEST = 5
"""The depth of nested objects that the pattern follows."""
_AROUND = r"^[ \t\r\n]*+(?:\[[ \t\r\n,]*+\][ \t\r\n]*+)?\z"
"""A pattern for the text around the objects of a whole file."""
_BLANK = r"[ \t\r\n]*+"
_STRING = r'"(?:[^"\\]++|\\.)*+"'
_IS_ARRAY = r"^[ \t\r\n]*\["
_ENDS_ARRAY = r"[}\]][ \t\r\n]*\]"
_OBJECT = "struct<x string>"
_KEY_END = '":'
_SPACED = ("'", '" ', '"\t', '"\r', '"\n')
"""Texts of which each line has one if a key is not in double quotes, or has a blank after it."""
_FEW_NAMES = 16
_BACKSLASH, _SINGLE = "\\", "'"
_DEFAULT = "EXISTS_DEFAULT"
"""The key in the schema's metadata for the value that parsers give a missing column."""


def has_tail(value: str, options: str, *, whole_file: bool) -> str:
    """Return SQL that is true for a line with more than one object.

    For a whole file, it is true for more than one object or array. It is never NULL. For text that is not JSON the
    answer is undefined.
    """
    if whole_file:
        return f"(not {_matches_sql(value, _ONE_VALUE)} and not {_stands_alone_sql(value, options, 'string')})"
    nested = " and ".join(
        f"octet_length(substring_index({text}, '}}', 1)) <> octet_length({text}) - 1"
        for text in (value, f"rtrim({value})")
    )
    alone = f"not {is_array(value)} and {_stands_alone_sql(value, options, _OBJECT)}"
    return f"({nested} and not {_matches_sql(value, _ONE_OBJECT)} and not ({alone}))"


def is_array(value: str) -> str:
    """Return SQL that is true for text that begins like an array."""
    return _matches_sql(value, _IS_ARRAY)


def as_array(value: str) -> str:
    """Return SQL for the text of a whole file as an array, if it is an array or an object."""
    return f"if({is_array(value)}, {value}, concat('[', {value}, '\\n]'))"


def split_objects_sql(value: str) -> str:
    """Return SQL for the texts of the objects in a whole file, unchanged; NULL if some are nested too deep."""
    pattern = quote_text(_pattern(_DEEPEST))
    rest = f"regexp_replace({value}, {pattern}, '')"
    return f"if({_matches_sql(rest, _AROUND)}, regexp_extract_all({value}, {pattern}, 0), null)"


def _pattern(depth: int) -> str:
    """Return a pattern for an object with this depth of nested objects. It ignores braces inside strings."""
    inside = [r"""[^{}"'/]++""", _STRING, *([_pattern(depth - 1)] if depth else [])]
    return rf"\{{(?:{'|'.join(inside)})*+\}}"


_ONE_OBJECT = rf"(?s)^{_BLANK}(?:\{{[^{{}}]*+\}}|{_pattern(_DEEPEST)})?{_BLANK}\z"
_ONE_VALUE = rf"(?s)^{_BLANK}(?:\[(?:[^\[\]{{}}\"'/]++|{_STRING}|{_pattern(2)})*+\]|{_pattern(_DEEPEST)})?{_BLANK}\z"


def _stands_alone_sql(value: str, options: str, kind: str) -> str:
    """Return SQL that is true if the value has no text after it.

    Text that escapes one pair of brackets breaks the other.
    """
    in_an_array = _is_one(f"concat('[', {value}, '\\n]')", options, kind)
    in_an_object = _is_one(f"concat('[{{\"\":', {value}, '\\n}}]')", options, _OBJECT)
    return f"({in_an_array} and (not {_matches_sql(value, _ENDS_ARRAY)} or {in_an_object}))"


def _is_one(array: str, options: str, kind: str) -> str:
    return f"size(from_json({array}, {quote_text(f'array<{kind}>')}, {options})) <=> 1"


def _matches_sql(value: str, pattern: str) -> str:
    return f"{value} rlike {quote_text(pattern)}"


def may_have_other(line: str, schema: T.DataType, *, any_name: bool) -> str:
    """Return SQL that is true for a line with a key that the schema does not have.

    Without `any_name`, it must differ from one of the schema's names only in case. The SQL may be true for other lines
    as well, but needs no parsing.
    """
    names = "|".join(sorted({escape_name(path[-1]) for path, _ in walk_types(schema) if path}))
    other = r'(?:[^"\\]|\\.)*+' if any_name else f"(?iu:{names})"
    unlike = rf'"(?!(?:{names})"[ \t\r\n]*:){other}"[ \t\r\n]*:'
    escaped = r'"[^"]*\\u[^"]*"[ \t\r\n]*:'
    single = r"'[ \t\r\n]*:"
    return f"{line} rlike {quote_text(f'{unlike}|{escaped}|{single}')}"


def _has_plain_keys(line: str, schema: T.StructType) -> str | None:
    """Return SQL that is true only for a line whose keys are names of the schema, each once.

    It compares the number of quotes before a colon with the number of names that were found. It is None if the schema
    has many names, since patterns then cost less, or if a name has a quote.
    """
    names = {path[-1] for path, _ in walk_types(schema) if path}
    if len(names) > _FEW_NAMES or any('"' in name for name in names):
        return None
    odd = " and ".join(f"not contains({line}, {quote_text(each)})" for each in _SPACED)
    keys_of = [quote_text(f'"{name}{_KEY_END}') for name in sorted(names)]
    found = " + ".join(f"cast(contains({line}, {each}) as int)" for each in keys_of)
    return f"substring_index({line}, {quote_text(_KEY_END)}, 1 + {found}) = {line} and {odd}"


def _is_one_flat_object(line: str, found: str) -> str:
    """Return SQL that is true only for a line that is one flat object with exactly `found` members, without escapes.

    An object has at most one member more than commas. The last piece between commas is the only one with a brace, and
    so no other piece is equal to it.
    """
    before = f"cast(substring(cast({line} as binary), 1, octet_length({line}) - 1) as string)"
    is_alone = f"startswith({line}, '{{') and endswith({line}, '}}') and not contains({before}, '}}')"
    pieces = f"find_in_set(substring_index({line}, ',', -1), {line})"
    return f"{is_alone} and not contains({line}, {quote_text(_BACKSLASH)}) and {pieces} = {found}"


def make_keys_sql(line: str, options: Mapping[str, str]) -> str:
    """Return SQL for the keys of the object in a text; none if it is not an object."""
    return f"coalesce(map_keys(from_json({line}, {_MAP}, {as_map(options)})), {_NONE})"


def make_strange_paths_sql(line: str, schema: T.StructType, options: Mapping[str, str]) -> str:
    """Return SQL for the paths (`address.zip`) of the keys that the schema does not have, at any depth."""
    return _collect_paths_sql(line, schema, options, lambda keys, names: f"array_except({keys}, {names})")


def make_doubled_paths_sql(line: str, kind: T.DataType, options: Mapping[str, str]) -> str:
    """Return SQL for the paths of fields that an object has more than once, in upper or lower case.

    Keys of a map are compared exactly. A key without a field is left out, because no value is lost. A parser that
    detects such keys is tried first.
    """

    def in_object(keys: str, names: str) -> str:
        return f"filter({names}, name -> size(filter({keys}, key -> lower(key) = lower(name))) > 1)"

    def in_map(keys: str) -> str:
        return f"filter(array_distinct({keys}), name -> size(filter({keys}, key -> key = name)) > 1)"

    found = _collect_paths_sql(line, kind, options, in_object, in_map)
    known = may_have_other(line, kind, any_name=False)
    return f"if(try_parse_json({line}) is null or {known}, {found}, {_NONE})"


def make_lacking_paths_sql(line: str, schema: T.StructType, options: Mapping[str, str]) -> str:
    """Return SQL for the paths of the schema that the object does not have.

    For a struct that is NULL none is missing.
    """
    found = f"if(size({{keys}}) = 0, {_NONE}, array_except({{names}}, {{keys}}))"
    inner = _collect_paths_sql(line, schema, options, lambda keys, names: found.format(keys=keys, names=names))
    is_empty = f"coalesce(size(from_json({line}, {_MAP}, {as_map(options)})) = 0, false)"
    return f"if({is_empty}, {_make_array_sql(schema.names)}, {inner})"


def make_value_under_key_sql(line: str, name: str, kind: str, options: Mapping[str, str]) -> str:
    """Return SQL for the value under a key of the object in a text, with this type. An object as text is JSON."""
    return f"from_json({line}, {quote_text(f'{quote_name(name)} {kind}')}, {as_map(options)}).{quote_name(name)}"


def _collect_paths_sql(
    line: str,
    kind: T.DataType,
    options: Mapping[str, str],
    in_object: Callable[[str, str], str],
    in_map: Callable[[str], str] | None = None,
    before: str = "",
) -> str:
    """Return SQL for the paths that are found in the object and in the objects inside it.

    `in_object` compares its keys with the names that it may have, and `in_map` checks the keys of a map.
    """
    keys, parts = make_keys_sql(line, options), []
    if isinstance(kind, T.StructType):
        parts.append(_put_before(in_object(keys, _make_array_sql(kind.names)), before))
        for field in kind:
            value, path = make_value_under_key_sql(line, field.name, "string", options), f"{before}{field.name}."
            parts.append(_collect_paths_sql(value, field.dataType, options, in_object, in_map, path))
    elif isinstance(kind, T.ArrayType | T.MapType):
        is_map, each = isinstance(kind, T.MapType), f"each{before.count('.')}"
        values = f"map_values(from_json({line}, {_MAP}, {as_map(options)}))"
        if in_map is not None and is_map:
            parts.append(_put_before(in_map(keys), before))
        elif not is_map:
            values = f"from_json({line}, 'array<string>', {as_map(options)})"
        element = kind.valueType if isinstance(kind, T.MapType) else kind.elementType
        inner = _collect_paths_sql(each, element, options, in_object, in_map, before)
        if inner != _NONE:
            parts.append(f"coalesce(array_distinct(flatten(transform({values}, {each} -> {inner}))), {_NONE})")
    found = [part for part in parts if part != _NONE]
    return f"concat({', '.join(found)})" if len(found) > 1 else (found or [_NONE])[0]


def _put_before(paths: str, before: str) -> str:
    return f"transform({paths}, path -> concat({quote_text(before)}, path))" if before else paths


def _make_array_sql(names: Sequence[str]) -> str:
    return f"array({', '.join(map(quote_text, names))})" if names else _NONE


_TAKEN = ("ignore", "rescue")
_KEYS = ("extra", "other")
_TWICE = "an object has this key more than once, but only one value can be kept: "
_SPELLED = " is spelled differently from the column, and keys must match exactly"


@dataclass(frozen=True, kw_only=True)
class JsonChanges:
    """The policies for the keys of objects that should have this schema."""

    schema: T.StructType
    changes: Changes
    options: Mapping[str, str]

    @property
    def asks_missing(self) -> bool:
        """Return whether missing columns matter."""
        return self.changes.missing != "evolve"

    @property
    def asks_extra(self) -> bool:
        """Return whether keys that the schema does not have matter."""
        return self.changes.extra != "ignore"

    @property
    def asks_doubled(self) -> bool:
        """Return whether keys that occur twice matter."""
        return self.changes.doubled != "keep_last"

    @property
    def takes_apart(self) -> bool:
        """Return whether lines are parsed key by key, because some values that do not fit are not refused."""
        policies = {self.changes.wider, self.changes.other, self.changes.corrupt}
        return self.changes.rescues or not (is_whole(self.options) or policies <= {"nack", "evolve"})

    def is_plain_sql(self, line: str, parsed: str | None = None) -> str:
        """Return SQL that is true only for a line whose object has the right keys, each once, and no text after it.

        The line also has no escapes. It must be JSON. The SQL costs a fraction of the exact checks. A column of
        `parsed` that is not NULL proves its key. The text proves the others: without escapes and single quotes, a name
        between quotes and before a colon is a key.
        """
        columns = self.schema.fields
        proving = [each.name for each in columns if parsed is not None and _DEFAULT not in each.metadata]
        has_parts = any(isinstance(each.dataType, T.StructType | T.ArrayType | T.MapType) for each in columns)
        odd_name = any('"' in each.name for each in columns)  # several members may look like one key of this name
        if has_parts or odd_name or not self._is_usual or len(columns) - len(proving) > _FEW_NAMES:
            return "false"
        has_value = {name: f"{parsed}.{quote_name(name)} is not null" for name in proving}
        keys = [(each.name, quote_text(f'"{each.name}{_KEY_END}')) for each in columns]
        is_there = [join_conditions([has_value.get(name, "false"), f"contains({line}, {key})"]) for name, key in keys]
        found = " + ".join(f"cast({each} as int)" for each in is_there)
        all_there = " and ".join(has_value.values()) if len(proving) == len(columns) else "false"
        parts = [
            _is_one_flat_object(line, found),
            join_conditions([all_there, f"not contains({line}, {quote_text(_SINGLE)})"]),
            f"is_valid_utf8({line})",
            f"{found} = {len(columns)}" if self.asks_missing else "true",
        ]
        return " and ".join(f"({part})" for part in parts if part != "true")

    @property
    def _is_usual(self) -> bool:
        """Return whether JSON is read as UTF-8, one object a line, and only as tolerantly as by default."""
        odd = self.options.keys() & {"encoding", "multiline"}
        return not odd and not any(name.startswith("allow") for name in self.options)

    @property
    def only_keys(self) -> bool:
        """Return whether only extra keys are rescued, so that files without them need not be parsed key by key."""
        return {self.changes.wider, self.changes.other, self.changes.corrupt} <= {"nack", "evolve"}

    @property
    def any_stops(self) -> bool:
        return "stop" in vars(self.changes).values()

    def make_strange_paths_sql(self, line: str) -> str:
        """Return SQL for the paths of a line's keys that the schema does not have exactly.

        Paths that no policy needs are left out.
        """
        is_asked = "true" if self.asks_extra else self._is_spelled
        suspect = may_have_other(line, self.schema, any_name=self.asks_extra)
        found = make_strange_paths_sql(line, self.schema, self.options)
        return f"if({suspect}, filter({found}, path -> {is_asked}), cast(array() as array<string>))"

    def make_refusal_sql(self, line: str, paths: str | None = None) -> str:
        """Return SQL for the problem of a line's keys, by the policies; NULL if there is none.

        `paths` are its `make_strange_paths_sql` paths, if they are known.
        """
        kinds = [kind for kind in _KEYS if getattr(self.changes, kind) not in _TAKEN]
        kinds += ["missing"] if self.asks_missing else []
        message = self._make_message_sql(line, paths, [*kinds, "doubled"] if self.asks_doubled else kinds)
        return message if self.asks_missing else f"if({self._may_be_refused(line)}, {message}, null)"

    def stop_sql(self, line: str, paths: str | None = None) -> str:
        """Return SQL for the problem of a line's keys that stops the run; NULL if there is none."""
        stops = {kind for kind in ("extra", "other", "missing") if getattr(self.changes, kind) == "stop"}
        return self._make_message_sql(line, paths, sorted(stops))

    def make_rescued_paths_sql(self, paths: str) -> str:
        """Return SQL for the rescued paths among the `make_strange_paths_sql` paths."""
        return f"filter({paths}, path -> {self._is_of([k for k in _KEYS if getattr(self.changes, k) == 'rescue'])})"

    def make_first_in_file_sql(self, line: str, found: str) -> str:
        """Return SQL for the first value of `found`, over the objects of a whole file, that is not NULL."""
        objects = f"from_json({as_array(line)}, 'array<string>', {as_map(self.options)})"
        return f"get(filter(transform({objects}, object -> {found}), message -> message is not null), 0)"

    def _may_be_refused(self, line: str) -> str:
        """Return SQL that is true for every line whose keys may be wrong.

        Spark compiles it, but not the message's SQL.
        """
        suspect = may_have_other(line, self.schema, any_name=self.asks_extra)
        if self.asks_doubled:
            suspect = f"({suspect} or try_parse_json({line}) is null)"
        is_plain = _has_plain_keys(line, self.schema)
        if is_plain is None or any(name.startswith("allow") for name in self.options):
            return suspect
        return f"not ({is_plain}) and {suspect}"

    @property
    def _is_spelled(self) -> str:
        paths = dict.fromkeys(".".join(path).lower() for path, _ in walk_types(self.schema) if path)
        return f"array_contains(array({', '.join(map(quote_text, paths))}), lower(path))"

    def _is_of(self, kinds: Sequence[str]) -> str:
        """Return SQL that is true for a strange path of one of these kinds of change."""
        if set(kinds) >= set(_KEYS):
            return "true"
        return {(): "false", ("extra",): f"not {self._is_spelled}"}.get((*kinds,), self._is_spelled)

    def _make_message_sql(self, line: str, paths: str | None, kinds: Sequence[str]) -> str:
        parts = []
        asked = [kind for kind in kinds if kind in _KEYS]
        if asked:
            message = (
                f"if({self._is_spelled}, concat(path, {quote_text(_SPELLED)}), concat('the schema has no ', path))"
            )
            found = (
                f"transform(filter({paths or self.make_strange_paths_sql(line)}, path "
                f"-> {self._is_of(asked)}), path -> {message})"
            )
            parts.append(f"nullif(array_join({found}, '; '), '')")
        if "missing" in kinds:
            absent = f"array_join({make_lacking_paths_sql(line, self.schema, self.options)}, ', ')"
            parts.append(f"concat('there is no ', nullif({absent}, ''))")
        if "doubled" in kinds:
            twice = f"array_join({make_doubled_paths_sql(line, self.schema, self.options)}, ', ')"
            parts.append(f"concat({quote_text(_TWICE)}, nullif({twice}, ''))")
        return f"nullif(concat_ws('; ', {', '.join(parts)}), '')" if parts else "cast(null as string)"
