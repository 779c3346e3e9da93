"""Find the texts of the source in the syntax tree: its messages and its docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("origins", "stages", "destinations", "runners")
_PLACEHOLDER = "N"
"""The text in place of each value of an f-string. It counts as one word."""
_CODE = re.compile(
    r"\b(struct|array|coalesce|cast|try_cast|concat|rlike|nullif|transform|exists|regexp_\w+|named_struct|raise_error)\("
    r"|\bcase when\b|\bif\(|^\s*\(|\b(SELECT|MERGE INTO|ALTER TABLE|CREATE TABLE|DELETE FROM|TBLPROPERTIES)\b"
    r"|-> |</?\w+[ >]|\\[wsdA]|\(\?|\bIS (NOT )?NULL\b|^\w+ (string|long|bigint)\b|[{]\w[\w-]*:#"
)
"""What marks a string as SQL, HTML or a regular expression."""


@dataclass(frozen=True)
class Text:
    """A text that a person may read, with its file and line."""

    file: str
    line: int
    text: str

    @property
    def sentences(self) -> list[str]:
        parts = [each for part in re.split(r"\n", self.text) for each in re.split(r"(?<=[.!?:])\s+", part)]
        return [" ".join(part.split()) for part in parts if part.strip()]


def list_sources() -> list[Path]:
    return sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))


def list_messages(file: Path) -> list[Text]:
    """Return the strings of at least three words that are not docstrings, code or help of the command line."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found = [Text(str(file.relative_to(ROOT)), line, text) for line, text in _list_strings(tree)]
    return [each for each in found if len(re.findall(r"[A-Za-z]{2,}", each.text)) >= 3 and not _CODE.search(each.text)]


def list_docstrings(file: Path) -> list[Text]:
    """List the docstrings of modules, classes, functions and attributes."""
    strings = [
        each.value
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for each in node.body
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
    ]
    name = str(file.relative_to(ROOT))
    return [Text(name, each.lineno, each.value) for each in strings if isinstance(each.value, str)]


def list_test_names(file: Path) -> list[Text]:
    """List the names of tests as sentences."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    tests = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return [Text(str(file.relative_to(ROOT)), test.lineno, test.name.replace("_", " ")) for test in tests]


def _list_strings(node: ast.AST) -> Iterator[tuple[int, str]]:
    text = _read_string(node)
    if text is not None:
        yield getattr(node, "lineno", 0), text
    inner = ast.iter_child_nodes(node) if text is None else _list_inside(node)
    for each in inner:
        if not _is_aside(each):
            yield from _list_strings(each)


def _is_aside(node: ast.AST) -> bool:
    """Whether the node is a docstring or a text of `--help`. Other tests check those texts."""
    if isinstance(node, ast.keyword) and node.arg in ("help", "metavar"):
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _read_string(node: ast.AST) -> str | None:
    """Return a literal, or several literals that are joined, as one text. Return None for any other node."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else _PLACEHOLDER for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _read_string(node.left), _read_string(node.right)
        if left is not None or right is not None:
            return (_PLACEHOLDER if left is None else left) + (_PLACEHOLDER if right is None else right)
    return None


def _list_inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the expressions in the placeholders of a text."""
    if isinstance(node, ast.JoinedStr):
        yield from (each.value for each in node.values if isinstance(each, ast.FormattedValue))
    if isinstance(node, ast.BinOp):
        for side in (node.left, node.right):
            yield from _list_inside(side) if _read_string(side) is not None else [side]
