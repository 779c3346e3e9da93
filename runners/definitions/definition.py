"""A definition: a pipeline as it is written in a file, resolved whole, with what the ledger keeps of it."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from origins.given_path import GivenPath
from runners.definitions.checks import completed, problems_of
from runners.definitions.document import LARGEST, Node, Scalar, decoded, parse
from runners.definitions.kinds import Kinds, ours
from runners.definitions.known import remember_secrets
from runners.definitions.parameters import Parameters, overridden
from runners.definitions.problems import DefinitionError, Problem
from runners.definitions.reading import Reader
from runners.definitions.scalars import WRONG
from runners.definitions.secrets import secrets_of, without
from runners.definitions.writing import written
from runners.pipeline import Pipeline

__all__ = ["Definition", "DefinitionError", "Problem", "load", "of"]


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A pipeline that can be carried out, and its text."""

    pipeline: Pipeline
    path: Path | None
    """The file; None for one that was made in Python."""
    text: str
    """The resolved definition as JSON, as the ledger keeps it: secrets stand in it as their references."""
    hash: str
    """Tells two definitions apart; the same for the same text."""


def load(
    path: str | Path,
    *,
    variables: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    needs_secrets: bool = True,
    kinds: Kinds | None = None,
) -> Definition:
    """The definition in a file. Raises DefinitionError with all that is wrong with it.

    `variables` are put in for `${NAME}` and win over the `environment` (default: the process's). `${secret:NAME}` is
    looked for in `secrets` and then in the environment, `${secret:scope/key}` in `secrets` and then on Databricks, and
    nowhere else. `overrides` are values by their paths, such as `dlq.window`. What only looks at a state needs no
    secrets: with `needs_secrets=False` those that are missing stay references.
    """
    file = Path(path)
    node = parse(_text(file), file.name)
    problems: list[Problem] = []
    for place, value in (overrides or {}).items():
        try:
            node = overridden(node, place, value)
        except ValueError as error:
            problems.append(Problem(path="", message=f"--set {place}={value}: {error}"))
    parameters = Parameters(
        variables=variables or {},
        environment=os.environ if environment is None else environment,
        given_secrets=secrets or {},
        needs_secrets=needs_secrets,
        problems=problems,
    )
    node = parameters.put_in(node)
    reader = Reader(directory=file.absolute().parent, kinds=kinds or ours(), problems=problems)
    remember_secrets(parameters.secrets)
    pipeline = reader.pipeline(node)
    if pipeline is not WRONG:
        pipeline = completed(dataclasses.replace(pipeline, secrets=parameters.secrets), kinds)
        problems.extend(_placed(problem, reader.places) for problem in problems_of(pipeline))
    if problems:
        raise DefinitionError(file.name, [_told(problem, parameters.secrets) for problem in _in_order(problems)])
    return _definition(pipeline, file, reader.directory, kinds)


def of(pipeline: Pipeline, *, directory: str | Path | None = None, kinds: Kinds | None = None) -> Definition:
    """The definition of a pipeline that was made in Python; its state lies beneath `directory` (default: this one)."""
    pipeline = completed(pipeline, kinds)
    pipeline = dataclasses.replace(pipeline, secrets=secrets_of(pipeline))
    remember_secrets(pipeline.secrets)
    problems = [_told(problem, pipeline.secrets) for problem in problems_of(pipeline)]
    if problems:
        raise DefinitionError(f"Pipeline {pipeline.name!r}", problems)
    return _definition(pipeline, None, Path(directory or "."), kinds)


def _definition(pipeline: Pipeline, path: Path | None, directory: Path, kinds: Kinds | None) -> Definition:
    state = f".wherry/{pipeline.name}" if pipeline.state is None else pipeline.state
    if isinstance(state, str) and not os.path.isabs(state):
        state = GivenPath(str(directory.absolute() / state), state)
    pipeline = dataclasses.replace(pipeline, state=state)
    text = json.dumps(written(pipeline, kinds), ensure_ascii=False, separators=(",", ":"))
    return Definition(pipeline=pipeline, path=path, text=text, hash=hashlib.sha256(text.encode()).hexdigest()[:16])


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return decoded(opened.read(LARGEST + 1), file.name)
    except FileNotFoundError as error:
        hint = _there_is(file.parent, file.name)
        raise DefinitionError(str(file), [Problem(path="", message="there is no such file")], hint=hint) from error
    except IsADirectoryError as error:
        said = "this is a folder; name the definition in it"
        hint = _there_is(file, f"{file.absolute().name}.yaml")
        raise DefinitionError(str(file), [Problem(path="", message=said)], hint=hint) from error
    except OSError as error:
        raise DefinitionError(str(file), [Problem(path="", message=f"cannot be read: {error.strerror}")]) from error


def _there_is(folder: Path, name: str) -> str:
    """Which definition of the folder may be meant by the name."""
    there = folder.iterdir() if folder.is_dir() else ()
    known = sorted(each.name for each in there if each.suffix in (".yaml", ".yml"))
    near = difflib.get_close_matches(name, known, n=1) or known[:1]
    return f"There is {folder / near[0]}." if near else "`wherry demo` makes one to start from."


def _placed(problem: Problem, places: Mapping[str, Node]) -> Problem:
    """The problem with the line of the nearest thing that stands in the document."""
    path = problem.path
    while path not in places and path:
        path = path.rpartition("." if path.rfind(".") > path.rfind("[") else "[")[0]
    node = places.get(path, Scalar(text=""))
    return dataclasses.replace(problem, line=node.line, column=node.column)


def _in_order(problems: list[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0))


def _told(problem: Problem, secrets: Mapping[str, str]) -> Problem:
    return dataclasses.replace(problem, message=without(secrets, problem.message))
