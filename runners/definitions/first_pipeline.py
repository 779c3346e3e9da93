"""A first pipeline: copied from the packaged examples, proposed for existing files, or made for the demo."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

from runners.definitions.proposal import Proposal
from runners.model.errors import Refusal
from runners.model.text import find_version

EXAMPLES = Path(__file__).parents[1] / "examples"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


def begin(
    directory: Path, name: str = "", *, example: str = "orders", compute: str = "", own: Proposal | None = None
) -> Mapping[Path, str]:
    """Write the example under this name (default: the directory's name), or the proposal for the user's files in `own`.

    The example `databricks` is for one of the `COMPUTES`, by default the first. Return what each file is, with the
    definition first. Raise `Refusal`, with nothing written, if another file is in the way or the name is invalid.
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
    made = _render_example(EXAMPLES / example, name, compute or COMPUTES[0])
    if own is not None:
        made = iter([(Path(f"{name}.yaml"), own.write_definition(directory, name))])
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
    named = {max((end for end in _WHAT if file.name.endswith(end)), key=len, default=""): file for file in files}
    return {named[key]: what for key, what in _WHAT.items() if key in named}


_WHAT = {
    ".yaml": "the definition",
    ".csv": "sample rows, some of them bad",
    ".test.yaml": "test cases: what happens to the sample, and to a row",
    "databricks.yml": "an asset bundle: a schema, a volume, and a job that runs when files arrive",
    "notebook.py": "a notebook to look at rows, and to run the pipeline by hand",
    "requirements.txt": "what pip installs there",
}
COMPUTES = ("serverless", "classic")
"""What can run the jobs of the example `databricks`. A line of it that is for one of these ends with its name."""


def _render_example(example: Path, name: str, compute: str) -> Iterator[tuple[Path, str]]:
    """Yield the example's files with this name instead of `orders`, in their names and, except for CSV, their text."""
    others = "|".join(each for each in COMPUTES if each != compute)
    for file in sorted(example.rglob("*")):
        if file.is_file() and file.suffix in (".yaml", ".yml", ".py", ".csv", ".txt"):
            place = file.relative_to(example)
            first, dot, rest = place.name.partition(".")
            renamed = place.with_name(f"{name}{dot}{rest}") if first == "orders" else place
            text = file.read_text(encoding="utf-8")
            if file.suffix != ".csv":
                text = re.sub(rf".*  # ({others})\n", "", text).replace(f"  # {compute}\n", "\n")
                text = re.sub(r"\borders\b", name, text).replace("==VERSION", f"=={find_version()}")
            yield renamed, text


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
    """Write the orders and the definition. Return the definition's path. The same seed gives the same files.

    Raise `Refusal` if another definition exists there.
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
    """Yield orders as lines of JSON. About 2 % of them are bad, in five ways."""
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
