"""A pipeline to begin with: copied from the packaged examples, made for files that are there, or the demo's."""

from __future__ import annotations

import codecs
import csv
import gzip
import itertools
import json
import os
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import IO

from origins.names import quote_name
from runners.model.errors import Refusal

EXAMPLES = Path(__file__).parents[1] / "examples"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def begin(directory: Path, name: str = "", *, example: str = "orders", own: Path | None = None) -> Mapping[Path, str]:
    """Write the example under this name (default: the directory's), or a definition for files of one's `own`; returns
    what each file is, the definition first.

    Raises `Refusal`, with nothing written, where another file lies in the way or the name is none.
    """
    name = name or directory.absolute().name
    if not _NAME.fullmatch(name):
        near = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_") or "orders"
        raise Refusal(
            f"{name!r} cannot be a pipeline's name: expected letters, digits, _ and -.", hint=f"Add --name {near}."
        )
    if example == "databricks" and "-" in name:
        raise Refusal(
            f"{name!r} cannot be a pipeline's name on Databricks: expected the name of a table.",
            hint=f"Add --name {name.replace('-', '_')}.",
        )
    made = _render_example(EXAMPLES / example, name)
    if own is not None:
        made = iter([(Path(f"{name}.yaml"), write_definition_for(own, directory, name))])
    files = {directory / place: content for place, content in made}
    for file, content in files.items():
        if file.exists() and (not file.is_file() or file.read_bytes() != content.encode()):
            raise Refusal(
                f"{file} exists already, and Wherry did not overwrite it.",
                hint="Choose another directory:  wherry init DIRECTORY",
            )
    try:
        for file, content in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode())
    except OSError as error:
        raise Refusal(
            f"{directory} cannot be written ({error.strerror}).",
            hint="Choose a directory that you can write:  wherry init DIRECTORY",
        ) from error
    named = {(file.name if file.name in _WHAT else file.suffix): file for file in files}
    return {named[key]: what for key, what in _WHAT.items() if key in named}


_WHAT = {
    ".yaml": "the definition",
    ".csv": "sample rows, some of them bad",
    "test_pipeline.py": "a test of the definition on the sample",
    "databricks.yml": "an asset bundle: a scheduled job",
    "notebook.py": "the notebook that the job runs",
}


def _render_example(example: Path, name: str) -> Iterator[tuple[Path, str]]:
    """The example's files with the pipeline's name in the place of its own, in their text and in their names."""
    for file in sorted(example.rglob("*")):
        if file.is_file() and file.suffix in (".yaml", ".yml", ".py", ".csv"):
            place = file.relative_to(example)
            renamed = place.with_name(f"{name}{file.suffix}") if place.stem == "orders" else place
            text = file.read_text(encoding="utf-8")
            yield renamed, re.sub(r"\borders\b", name, text) if file.suffix != ".csv" else text


_FORMATS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_LOOKED_AT = 200
_MOST_BAD, _FEW_BAD, _NEVER_BAD = 0.1, 2, 0.25
"""A column has a type if no larger share of its values is of another, or so few of them, and never so large a share:
those are what the type is there to refuse."""
_CODE = re.compile(r"[+-]?0\d+")
"""A number that begins with 0 is a code, as `007` is; no number has them."""
_TYPES = {
    "bigint": re.compile(r"[+-]?\d{1,18}"),
    "decimal(18,2)": re.compile(r"[+-]?\d{1,16}(\.\d{1,2})?"),
    "double": re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"),
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "timestamp": re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?"),
}

_WRITTEN_OTHERWISE = {
    "decimal(18,2)": (
        re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d{1,2})?"),
        "replace(regexp_replace({}, '[.](?=[0-9]{{3}}(?![0-9]))', ''), ',', '.')",
    ),
    "date": (
        re.compile(r"\d\d\.\d\d\.\d{4}"),
        "regexp_replace({}, '^([0-9]{{2}})[.]([0-9]{{2}})[.]([0-9]{{4}})$', '$3-$2-$1')",
    ),
}
"""`1.234,56` and `31.01.2026`, and how they are put so that a cast takes them; anything else stays for it to refuse."""
_LOOKS = [
    *((kind, looks, "") for kind, looks in _TYPES.items()),
    *((kind, looks, put) for kind, (looks, put) in _WRITTEN_OTHERWISE.items()),
]
_BYTES = 1 << 20
"""So much of a file shows whether it is UTF-8."""
_LATIN = "ISO-8859-1"


def write_definition_for(place: Path, directory: Path, name: str) -> str:
    """The definition in `directory` that carries these files, one or a folder of them, to a table of this name.

    Raises `Refusal` where there are none whose format is known by their names.
    """
    try:
        files = sorted(_list_files(place), key=lambda file: file.name)
    except OSError as error:
        raise Refusal(f"{place} cannot be read: {error.strerror}.") from error
    if not files:
        known = ", ".join(_FORMATS)
        raise Refusal(f"{place}: expected a file, or a folder of files, with a name that ends with one of {known}.")
    suffix, kind = _get_suffix(files[0]), _FORMATS[_get_suffix(files[0])]
    packed = ".gz" if files[0].suffix == ".gz" else ""
    path = os.path.relpath(place / f"*{suffix}{packed}" if place.is_dir() else place, directory)
    try:
        options, rows = _sample(files[0], kind)
    except (OSError, ValueError) as error:
        raise Refusal(f"{files[0]} cannot be read as {kind}: {error}.") from error
    types, written = _guess_types(rows)
    put = f"  - with_columns: {_format_flow(written)}  # from 1.234,56 and 31.01.2026\n" if written else ""
    cast = (
        f"stages:\n{put}  - cast: {_format_flow(types)}  # from the first rows; refuses values that do not fit\n"
        if types
        else ""
    )
    return (
        f"name: {name}\n"
        "origin:\n"
        "  files:\n"
        f"    path: {_quote(path)}  # the first run infers the columns and keeps them\n"
        f"    format: {kind}\n"
        f"{f'    options: {_format_flow(options)}' + chr(10) if options else ''}"
        f"{cast}"
        "destinations:\n"
        f"  - delta: {{path: tables/{name}}}\n"
        "dlq: {window: 1000, threshold: 100}  # stops when 100 of the last 1000 rows were refused\n"
    )


def _list_files(place: Path) -> Iterator[Path]:
    for file in place.iterdir() if place.is_dir() else [place]:
        if file.is_file() and not file.name.startswith(("_", ".")) and _get_suffix(file) in _FORMATS:
            yield file


def _get_suffix(file: Path) -> str:
    return Path(file.stem if file.suffix == ".gz" else file.name).suffix


def _sample(file: Path, kind: str) -> tuple[Mapping[str, str], Sequence[Mapping[str, object]]]:
    """The reader's options that the file needs, and its first rows."""
    if kind == "parquet":
        return {}, []
    if kind == "json":
        with _open_file(file) as lines:
            return {}, list(_parse_objects(itertools.islice(lines, _LOOKED_AT)))
    encoding = {} if _is_utf8(_start(file)) else {"encoding": _LATIN}
    with _open_file(file, **encoding) as lines:
        header = next(lines, "")
        separator = max(",;\t|", key=header.count)
        read = csv.DictReader(itertools.chain([header], lines), delimiter=separator)
        rows = list(itertools.islice(read, _LOOKED_AT))
    return {**({} if separator == "," else {"sep": separator}), **encoding}, rows


def _open_file(file: Path, encoding: str = "utf-8-sig") -> IO[str]:
    how = {"encoding": encoding, "errors": "replace"}
    return gzip.open(file, "rt", **how) if file.suffix == ".gz" else file.open("r", **how)  # type: ignore[call-overload,no-any-return]


def _start(file: Path) -> bytes:
    with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as stream:
        return stream.read(_BYTES)


def _is_utf8(start: bytes) -> bool:
    """Whether a file that begins so is meant to be UTF-8, also with bytes in it that are none."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return any("\x7f" < char < "\ud800" for char in start.decode("utf-8", errors="surrogateescape"))
    return True


def _parse_objects(lines: Iterable[str]) -> Iterator[Mapping[str, object]]:
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def _guess_types(rows: Sequence[Mapping[str, object]]) -> tuple[dict[str, str], dict[str, str]]:
    """The types of the columns whose values are text that looks like something else, and for those whose values a cast
    does not take as they are written, the expressions that put them so."""
    names = dict.fromkeys(name for row in rows for name in row if isinstance(name, str) and name)
    found = {name: _guess_type([row.get(name) for row in rows]) for name in names}
    types = {name: kind for name, (kind, _) in found.items() if kind}
    return types, {name: put.format(quote_name(name)) for name, (_, put) in found.items() if put}


def _guess_type(values: list[object]) -> tuple[str, str]:
    given = [value.strip() for value in values if isinstance(value, str) and value.strip()]
    if not given or any(not isinstance(value, str) for value in values if value is not None):
        return "", ""
    if any(_CODE.fullmatch(value) for value in given):
        return "", ""
    most = min(max(_MOST_BAD * len(given), _FEW_BAD), _NEVER_BAD * len(given))
    for kind, looks, put in _LOOKS:
        if sum(not looks.fullmatch(value) for value in given) <= most:
            return kind, put
    return "", ""


def _format_flow(values: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{_quote(name)}: {_quote(value)}' for name, value in values.items())}}}"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("${", "$${")


DEFINITION = """\
name: orders
origin:
  files:
    path: "landing/orders/*.json"
    format: json
    schema: "id long, email string, amount string, country string, at timestamp"
    max_files: 1                                  # one file a batch, so that there is something to see
stages:
  - cast: {amount: "decimal(10,2)"}               # refuses values that are not amounts
  - require: {positive_amount: "amount > 0"}      # refuses values that are not positive
  - filter: "email is not null"                   # keeps only orders with an email
  - with_columns: {email: "lower(email)", day: "date(at)"}
destinations:
  - delta: {path: tables/orders}
dlq: {window: 1000, threshold: 100}               # stops when 100 of the last 1000 rows were refused
"""

COUNTRIES = ("AT", "BR", "CH", "DE", "FR", "IN", "JP", "NG", "PL", "US")
NAMES = ("Ada", "Björn", "Chidi", "Dörte", "Eun-ji", "Fatima", "Grace", "Hans", "Inês", "Jürgen", "Kofi", "Łucja")


def make(directory: Path, *, files: int = 20, rows: int = 1_000, seed: int = 7) -> Path:
    """Write the orders and the definition; returns the definition's path. The same for the same seed.

    Raises `Refusal` where something else lies already.
    """
    definition = directory / "orders.yaml"
    if definition.exists():
        if definition.read_text(encoding="utf-8") != DEFINITION:
            raise Refusal(
                f"{definition} exists already, and the demo did not write it.",
                hint="Choose another directory:  wherry demo DIRECTORY",
            )
        return definition
    landing = directory / "landing" / "orders"
    try:
        landing.mkdir(parents=True, exist_ok=True)
        dice = random.Random(seed)  # noqa: S311  (orders, not secrets)
        for number in range(files):
            lines = _make_lines(dice, range(number * rows + 1, (number + 1) * rows + 1))
            (landing / f"orders-{number + 1:04}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
        definition.write_text(DEFINITION, encoding="utf-8")
    except OSError as error:
        raise Refusal(
            f"The demo cannot be written to {directory} ({error.strerror}).",
            hint="Choose a directory that you can write:  wherry demo DIRECTORY",
        ) from error
    return definition


def _make_lines(dice: random.Random, ids: range) -> Iterator[str]:
    """Orders as lines of JSON: about 2 % of them bad, in five ways."""
    began = datetime(2026, 1, 1, tzinfo=timezone.utc)
    for number in ids:
        name, country = dice.choice(NAMES), dice.choice(COUNTRIES)
        order = {
            "id": number,
            "email": f"{name}.{number}@example.{country.lower()}",
            "amount": f"{dice.lognormvariate(3.5, 1):.2f}",
            "country": country,
            "at": (began + timedelta(seconds=37 * number)).isoformat(),
        }
        chance = dice.random()
        if chance < 0.004:
            order["amount"] = dice.choice(["sieben", "12,50", "n/a", "1e99"])
        elif chance < 0.007:
            order["amount"] = f"-{order['amount']}"
        elif chance < 0.020:
            order["email"] = None
        line = json.dumps(order, ensure_ascii=False)
        yield line if chance < 0.999 else line[: len(line) // 2]
