"""SQL expressions in a definition. They may contain labels of the batch, and may not be repeatable."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone

from origins.names import HIDDEN, quote_name, quote_text, unquote_name

LABELS = ("origin", "lane", "number", "run", "batch_time")
"""The labels of a batch that an expression may use, for example `:lane`."""

_TOKEN = re.compile(
    r"""(?P<string>\b[rR](?:'[^']*'|"[^"]*")|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")"""
    r"""|(?P<quoted>`(?:``|[^`])*`)"""
    r"""|(?P<comment>--(?:\\\n|[^\r\n])*|/\*)"""
    r"""|(?P<label>:(?:origin|lane|number|run|batch_time)\b)"""
    r"""|(?P<word>[^\W\d]\w*|\d[\w.]*)"""
    r"""|(?P<space>\s+)"""
    r"""|(?P<mark>::|.)""",
    re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_BEFORE_A_VALUE = re.compile(
    r"all|and|any|as|between|by|case|cross|distinct|div|else|escape|except|exists|extract|filter|for|from|group"
    r"|having|ilike|in|intersect|interval|is|join|lateral|like|limit|not|offset|on|or|order|over|regexp|rlike|select"
    r"|set|similar|some|then|union|using|values|when|where",
    re.IGNORECASE,
)
"""Words before a value. After any other word, `:` accesses a part of the value before it."""
_CHANGING = re.compile(
    r"\b(?:current_(?:timestamp|date|time|user)|session_user|localtimestamp|_metadata)\b"
    r"|\b(?:rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id|spark_partition_id|now|curdate"
    r"|unix_timestamp|user|version|current_\w+|input_file_\w+|reflect|try_reflect|java_method|ai_\w+|http_request"
    r"|any_value|first|first_value|last|last_value|nth_value|lag|lead|ntile|row_number|mode|max_by|min_by"
    r"|collect_list|collect_set|array_agg|listagg|string_agg|histogram_numeric|percentile_approx|approx_\w+|kll_\w+"
    r"|read_\w+|tablesample)\s*\("
    r"|\b(?:limit|offset)\s+[\d:(]"
    r"|\w\s*\.\s*\w+\s*\(",
    re.IGNORECASE,
)
"""Functions that depend on the time, on chance or on the order of rows, and a schema's functions, which may do
anything."""
_WINDOW = re.compile(r"\)\s*over\b", re.IGNORECASE)
_CLAUSES = re.compile("select|where|group|having|order|sort|cluster|distribute|limit|window|qualify|union")
_UNFOLDING = re.compile("view|(?:pos)?explode(?:_outer)?|inline(?:_outer)?|stack|range")
"""Names in the place of a table that give the same result for the same row."""
_SILENT = ("space", "comment")
_QUERY = re.compile(r"\(\s*(?:select|with|values|table|from)\s", re.IGNORECASE)


def put_in(sql: str, labels: Mapping[str, str | int | datetime]) -> str:
    """Return the expression with its labels replaced by literals.

    Strings, quoted names, comments, casts (`x::date`) and parts of a value (`payload:lane`) are not changed.
    """
    tokens, value_before = [], False
    for kind, token in _tokenize(sql):
        if kind == "label" and not value_before:
            tokens.append(_format_literal(labels[token[1:]]))
            value_before = True
            continue
        tokens.append(token)
        if kind == "word":
            value_before = not _BEFORE_A_VALUE.fullmatch(token)
        elif kind not in ("space", "comment"):
            value_before = kind != "mark" or token in (")", "]")
    return "".join(tokens)


class SqlText(str):
    """An expression as SQL text.

    A select of texts is one call to Spark. Each part of a Column is a separate call, which takes longer than the rows
    in a small batch.
    """

    def name(self, name: str) -> SqlText:
        """Return the expression under a name."""
        return SqlText(f"{self} AS {quote_name(name)}")


def enclose(sql: str) -> SqlText | None:
    """Return the expression in brackets, for use inside another; None if its brackets or quotes do not match.

    In that case Spark has to report the error.
    """
    depth = 0
    for mark in (piece for kind, piece in _tokenize(sql) if kind == "mark"):
        depth += (mark in "([{") - (mark in ")]}")
        if depth < 0 or mark in "'\"`":
            return None
    goes_on = sql.endswith("\\")  # the comment would continue on the next line
    return None if depth or goes_on else SqlText(f"({sql}\n)")


def list_columns(sql: str) -> list[str]:
    """Return the possible columns of an expression, in lower case. Words of SQL may be among them."""
    return list(dict.fromkeys(name for _, name in _scan_names(sql) if name is not None))


def put_for(sql: str, columns: Mapping[str, str]) -> str:
    """Return the expression with columns, given in lower case, replaced by other expressions."""
    return "".join(columns.get(name or "", token) for token, name in _scan_names(sql))


def is_repeatable_sql(sql: str) -> bool:
    """Return whether the expression certainly gives the same result for the same rows.

    It may be false for a repeatable expression: a name that looks like a call of a changing function makes batches
    slower.
    """
    return _CHANGING.search(_strip_tokens(sql, "string", "comment")) is None


def list_tables(sql: str) -> set[str]:
    """Return the tables that a query reads, in lower case. Functions may be among them."""
    words = [piece.strip("`").lower() for kind, piece in _tokenize(sql) if kind not in ("space", "comment")]
    found: set[str] = set()
    given: set[str] = set()
    clauses = [""]
    for before, word, after in zip(["(", *words], words, [*words[1:], ""], strict=False):
        named_before = clauses[-1] == "from" and before in ("from", "join", ",", "lateral")
        if word == "(":
            clauses.append("")
        elif word == ")":
            clauses = clauses[:-1] or [""]
        elif named_before and _UNFOLDING.fullmatch(word):
            continue
        elif named_before and word != "lateral":
            found.add(f"{word}{after}" if after in (".", "(") else word)
        elif word in ("from", "join") and (clauses[-1] or before == "(" or len(clauses) == 1):
            clauses[-1] = "from"
        elif _CLAUSES.fullmatch(word):
            clauses[-1] = "select"
        elif after == "as":
            given.add(word)
    return found - given


def is_plain_select(sql: str) -> bool:
    """Return whether this is a single `select` that certainly contains no other query.

    It may be false for such a select.
    """
    words = [token.lower() for kind, token in _tokenize(sql) if kind == "word"]
    alone = words.count("select") == 1 and words.count("from") <= 1 and not {"table", "values"} & set(words)
    return alone and not _QUERY.search(_strip_tokens(sql, "string", "comment", "quoted"))


def add_to_select(sql: str, columns: str) -> str:
    """Return the query with these columns before its selected columns. Raise ValueError unless it is a SELECT."""
    pieces, depth, done = [], 0, False
    for kind, piece in _tokenize(sql):
        pieces.append(piece)
        depth += (piece == "(") - (piece == ")") if kind == "mark" else 0
        if not done and depth == 0 and kind == "word" and piece.lower() == "select":
            pieces.append(f" {columns}")
            done = True
    if not done:
        raise ValueError(f"expected one SELECT over rows, got {sql.strip()[:60]!r}")
    return "".join(pieces)


def check_expression(field: str, value: object) -> None:
    """Raise ValueError unless the value is text that can be SQL."""
    if value is None:
        raise ValueError(f"{field}: expected an expression, got nothing; for NULL, quote it: 'null'")
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{field}: expected an expression, got {value!r}; quote it if it is one")


def check_row_expression(field: str, value: object) -> None:
    """Raise ValueError unless the value is an expression over a single row."""
    check_expression(field, value)
    bare = _strip_tokens(str(value), "string", "comment", "quoted")
    for pattern, what in ((_WINDOW, "a window"), (_QUERY, "a query")):
        if pattern.search(bare):
            raise ValueError(f"{field}: {what} needs more than one row; write it in the stage sql")


def check_row_expressions(field: str, value: object) -> None:
    """Raise ValueError unless the value is a mapping from names of columns to such expressions."""
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"{field}: expected a mapping from names to expressions, got {value!r}")
    for name, expression in value.items():
        check_row_expression(f"{field}.{name}", expression)
    check_names(field, value)


def check_condition(field: str, value: object) -> None:
    """Raise ValueError unless the value is a condition that gives the same result for a row in every batch."""
    check_row_expression(field, value)
    if not is_repeatable_sql(str(value)):
        raise ValueError(f"{field}: expected a condition with the same result each time, got {value!r}")
    if put_in(str(value), dict.fromkeys(LABELS, "")) != value:
        raise ValueError(f"{field}: expected a condition on columns, got {value!r}, which depends on the batch")


def check_names(field: str, names: Iterable[object]) -> None:
    """Raise ValueError unless columns may have these names together."""
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"{field}: expected the name of a column, got {name!r}; quote it if it is one")
        if name.lower().startswith(HIDDEN):
            raise ValueError(f"{field}: {name!r} cannot be a column; names that begin with {HIDDEN} are reserved")
        if name.lower() in seen:
            raise ValueError(f"{field}: {name!r} is there twice; upper and lower case do not count")
        seen.add(name.lower())


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return a suggestion for an unknown name: the nearest known name, or all known names."""
    names = {own.lower(): own for own in known}
    near = difflib.get_close_matches(name.lower(), names, n=1)
    return f"did you mean '{names[near[0]]}'?" if near else f"there are: {', '.join(names.values())}"


def _scan_names(sql: str) -> Iterator[tuple[str, str | None]]:
    """Yield the tokens of the text, each with the column's name in lower case if it begins such a name, else None."""
    held, before = list(_tokenize(sql)), ""
    for index, (kind, token) in enumerate(held):
        after = next((next_token for next_kind, next_token in held[index + 1 :] if next_kind not in _SILENT), "")
        is_name = kind == "quoted" or (kind == "word" and not token[0].isdigit())
        begins = is_name and before != "." and after != "("
        yield token, unquote_name(token).lower() if begins else None
        before = before if kind in _SILENT else token


def _tokenize(sql: str) -> Iterator[tuple[str, str]]:
    at = 0
    while found := _TOKEN.match(sql, at):
        end = found.end() if found.group() != "/*" else _end_of_comment(sql, found.end())
        yield str(found.lastgroup), sql[at:end]
        at = end


def _end_of_comment(sql: str, at: int) -> int:
    """Return the end of a comment that began before `at`. Comments may be nested."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(sql, at):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(sql)


def _strip_tokens(sql: str, *left_out: str) -> str:
    """Return the text without some kinds of tokens. Quoted names appear without their quotes."""
    return "".join(" " if kind in left_out else token.strip("`") for kind, token in _tokenize(sql))


def _format_literal(value: str | int | datetime) -> str:
    if isinstance(value, datetime):
        return f"timestamp'{value.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S.%f}+00:00'"
    return f"{value}L" if isinstance(value, int) else quote_text(value)
