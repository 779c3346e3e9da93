"""A pipeline to begin with: a definition, sample rows and a test, copied from the examples that are packaged."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from runners.definitions.own_files import definition_for
from runners.errors import Refusal

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
            f"A pipeline cannot be called {name!r}: expected letters, digits, _ and -.", hint=f"Add --name {near}."
        )
    if example == "databricks" and "-" in name:
        raise Refusal(
            f"A pipeline on Databricks cannot be called {name!r}: its table has the same name.",
            hint=f"Add --name {name.replace('-', '_')}.",
        )
    made = _written(EXAMPLES / example, name)
    if own is not None:
        made = iter([(Path(f"{name}.yaml"), definition_for(own, directory, name))])
    files = {directory / place: content for place, content in made}
    for file, content in files.items():
        if file.exists() and (not file.is_file() or file.read_bytes() != content.encode()):
            raise Refusal(
                f"{file} is there already, and nothing was written over it.",
                hint="Name another directory:  wherry init DIRECTORY",
            )
    try:
        for file, content in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode())
    except OSError as error:
        raise Refusal(
            f"{directory} cannot be written ({error.strerror}).",
            hint="Name a directory that can be written:  wherry init DIRECTORY",
        ) from error
    named = {_key(file): file for file in files}
    return {named[key]: what for key, what in _WHAT.items() if key in named}


_WHAT = {
    ".yaml": "the definition",
    ".csv": "sample rows, some of them bad",
    "test_pipeline.py": "a test of the definition on the sample",
    "databricks.yml": "an asset bundle: a job by the clock",
    "notebook.py": "the notebook that the job runs",
}


def _key(file: Path) -> str:
    return file.name if file.name in _WHAT else file.suffix


def _written(example: Path, name: str) -> Iterator[tuple[Path, str]]:
    """The example's files with the pipeline's name in the place of its own, in their text and in their names."""
    for file in sorted(example.rglob("*")):
        if file.is_file() and file.suffix in (".yaml", ".yml", ".py", ".csv"):
            place = file.relative_to(example)
            renamed = place.with_name(f"{name}{file.suffix}") if place.stem == "orders" else place
            text = file.read_text(encoding="utf-8")
            yield renamed, re.sub(r"\borders\b", name, text) if file.suffix != ".csv" else text
