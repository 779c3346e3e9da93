"""Definitions: pipelines as a file or a folder of files contains them.

They are resolved completely, and written back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import hashlib
import json
import operator
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from destinations.destination import Destination
from destinations.dlq import Dlq
from origins.batch import JSON
from origins.errors import WherryError
from origins.names import GivenPath
from origins.origin import Origin
from origins.secret import SECRET, SecretText
from origins.store_access import StoreUrl, is_secret_setting, is_store_url
from runners.definitions.checks import complete_pipeline, copy_with, list_problems
from runners.definitions.dbutils import read_widgets
from runners.definitions.document import LARGEST, DefinitionError, Node, Problem, Scalar, decode_text, parse
from runners.definitions.kinds import CALLED, CONTRACTS, Kinds, find_kind, get_our_kinds, list_options
from runners.definitions.parameters import Parameters, find_job, override_value
from runners.definitions.yaml_reader import WRONG, DefinitionReader
from runners.model.errors import Refusal
from runners.model.masking import without
from runners.model.spec import Hook, PipelineSpec
from stages.stage import Stage

__all__ = ["Definition", "DefinitionError", "Problem", "definition_of", "load"]


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A pipeline that can be carried, and its text."""

    pipeline: PipelineSpec
    path: Path | None
    """The file. None for a pipeline made in Python."""
    text: str
    """The resolved definition as JSON, as the ledger stores it. It has references instead of secrets."""
    hash: str
    """The hash of the text, which tells two definitions apart."""


def load(  # noqa: PLR0913 -- each is an option of the commands
    path: str | Path,
    *,
    variables: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    needs_secrets: bool = True,
    kinds: Kinds | None = None,
    note_secrets: Callable[[Mapping[str, str]], None] = lambda _: None,
    text: str | None = None,
) -> Definition:
    """Load the definition in a file. Raise `DefinitionError` with everything that is wrong with it.

    With `text`, the file is not read: the text is what it would have.

    `variables` replace `${NAME}`. They take precedence over the widgets of a notebook of Databricks, and these over the
    `environment` (default: that of the process).
    `${secret:NAME}` is looked up in `secrets` and then in the environment. `${secret:scope/key}` is looked up in
    `secrets` and then on Databricks, and nowhere else. `overrides` are values by their paths, such as `dlq.window`.
    Commands that only look at a state need no secrets: with `needs_secrets=False`, missing secrets stay references.
    `note_secrets` gets the secrets with their references before anything is made from them.
    """
    file = Path(path)
    node = parse(_read_text(file) if text is None else text, file.name)
    problems: list[Problem] = []
    for place, value in (overrides or {}).items():
        try:
            node = override_value(node, place, value)
        except ValueError as error:
            problems.append(Problem(path="", message=f"--set {place}={value}: {error}"))
    parameters = Parameters(
        variables=variables or {},
        environment=os.environ if environment is None else environment,
        given_secrets=secrets or {},
        needs_secrets=needs_secrets,
        widgets=read_widgets(),
        problems=problems,
    )
    node = parameters.put_in(node)
    reader = DefinitionReader(directory=file.absolute().parent, kinds=kinds or get_our_kinds(), problems=problems)
    note_secrets(parameters.secrets)
    pipeline = reader.read_pipeline(node)
    if pipeline is not WRONG:
        given = {"secrets": parameters.secrets, "job": find_job({**(parameters.widgets or {}), **parameters.variables})}
        pipeline = complete_pipeline(dataclasses.replace(pipeline, **given), kinds)
        problems.extend(
            _locate_problem(problem, reader.places) for problem in list_problems(pipeline, reader.directory)
        )
    if problems:
        problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0))
        raise DefinitionError(file.name, [_mask_problem(problem, parameters.secrets) for problem in problems])
    definition = _make_definition(pipeline, file, reader.directory, kinds)
    note_secrets(definition.pipeline.secrets)
    return definition


def definition_of(pipeline: PipelineSpec, *, kinds: Kinds | None = None) -> Definition:
    """Return the definition of a pipeline made in Python. Its state is below the current directory."""
    pipeline = complete_pipeline(pipeline, kinds)
    job = pipeline.job or find_job(read_widgets() or {})
    pipeline = dataclasses.replace(pipeline, secrets=list_secrets(pipeline), job=job)
    problems = [_mask_problem(problem, pipeline.secrets) for problem in list_problems(pipeline, Path())]
    if problems:
        raise DefinitionError(f"Pipeline {pipeline.name!r}", problems)
    return _make_definition(pipeline, None, Path(), kinds)


def list_secrets(pipeline: PipelineSpec) -> Mapping[str, str]:
    """Return the secrets of a pipeline, each with its reference.

    They are the secrets that its definition took from outside and, in a pipeline made in Python, the values of secret
    options.
    """
    ends: list[Origin | Destination] = [*pipeline.given_origins, *pipeline.destinations]
    ends += pipeline.dlq.given_destinations
    components: list[Origin | Destination | Stage | Hook] = [*ends, *pipeline.stages, *pipeline.hooks]
    components += [stage for end in ends for stage in end.stages]
    given = {
        str(getattr(each, option.name) or ""): f"${{secret:{option.name}}}"
        for each in components
        for option in list_options(type(each)).values()
        if option.secret
    }
    return {**{secret: reference for secret, reference in given.items() if secret}, **pipeline.secrets}


def _make_definition(pipeline: PipelineSpec, path: Path | None, directory: Path, kinds: Kinds | None) -> Definition:
    state = f".wherry/{pipeline.name}" if pipeline.state is None else pipeline.state
    if isinstance(state, str) and not is_store_url(state) and not os.path.isabs(state):
        state = GivenPath(str(directory.absolute() / state), state)
    pipeline = _give_access(dataclasses.replace(pipeline, state=state))
    text = json.dumps(to_definition(pipeline, kinds), ensure_ascii=False, separators=(",", ":"))
    return Definition(pipeline=pipeline, path=path, text=text, hash=hashlib.sha256(text.encode()).hexdigest()[:16])


def _give_access(pipeline: PipelineSpec) -> PipelineSpec:
    """Return the pipeline with access to its stores.

    Secrets of stores in Spark's settings are hidden. Each place in a store becomes a URL that has these settings.
    """
    plain = {
        key: SecretText(value, f"${{secret:{key}}}")
        for key, value in pipeline.spark.conf.items()
        if is_secret_setting(key) and value and not isinstance(value, SecretText)
    }
    conf: dict[str, str] = {**pipeline.spark.conf, **plain}
    return dataclasses.replace(
        pipeline,
        **_list_places(pipeline, conf),
        spark=dataclasses.replace(pipeline.spark, conf=conf),
        secrets={**{str(value): value.reference for value in plain.values()}, **pipeline.secrets},
    )


def _list_places(holder: Any, conf: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a dataclass that contain URLs of stores, with these settings in the URLs."""
    fields = [field for field in dataclasses.fields(holder) if field.init]
    found = {each.name: (getattr(holder, each.name), bool(each.metadata.get("path"))) for each in fields}
    made = {name: _find_place(value, conf, is_path=is_path) for name, (value, is_path) in found.items()}
    return {name: value for name, value in made.items() if value is not found[name][0]}


def _find_place(value: Any, conf: Mapping[str, str], *, is_path: bool) -> Any:
    """Return the value of a field, with these settings in its URLs. Without a URL of a store, it is the same object."""
    if isinstance(value, str):
        return StoreUrl(value, conf) if is_path and is_store_url(value) else value
    if isinstance(value, list | tuple):
        made = tuple(_find_place(each, conf, is_path=is_path) for each in value)
        return value if all(map(operator.is_, made, value)) else made
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = _list_places(value, conf)
        return copy_with(value, **changes) if changes else value
    return value


def _read_text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return decode_text(opened.read(LARGEST + 1), file.name)
    except FileNotFoundError as error:
        hint = _suggest_file(file.parent, file.name)
        raise DefinitionError(str(file), [Problem(path="", message="there is no such file")], hint=hint) from error
    except IsADirectoryError as error:
        message = "expected a file, got a folder; name a definition in it"
        hint = _suggest_file(file, f"{file.absolute().name}.yaml")
        raise DefinitionError(str(file), [Problem(path="", message=message)], hint=hint) from error
    except OSError as error:
        raise DefinitionError(str(file), [Problem(path="", message=f"cannot be read: {error.strerror}")]) from error


def _suggest_file(folder: Path, name: str) -> str:
    there = folder.iterdir() if folder.is_dir() else ()
    known = sorted(each.name for each in there if each.suffix in (".yaml", ".yml"))
    near = difflib.get_close_matches(name, known, n=1) or known[:1]
    return f"Did you mean {folder / near[0]}?" if near else "`wherry demo` creates a first definition."


def _locate_problem(problem: Problem, places: Mapping[str, Node]) -> Problem:
    """Return the problem with the line of the nearest element that the document contains."""
    path = problem.path
    while path not in places and path:
        path = path.rpartition("." if path.rfind(".") > path.rfind("[") else "[")[0]
    node = places.get(path, Scalar(text=""))
    return dataclasses.replace(problem, line=node.line, column=node.column)


def _mask_problem(problem: Problem, secrets: Mapping[str, str]) -> Problem:
    return dataclasses.replace(problem, message=without(secrets, problem.message))


def to_definition(value: Any, kinds: Kinds | None = None) -> JSON:
    """Return the value as a definition writes it, without defaults.

    A function becomes `module:name`, a secret becomes its reference, and a path keeps the form in which it was given.
    """
    if isinstance(value, SECRET):
        return value.reference
    if isinstance(value, GivenPath):
        return value.given
    if isinstance(value, tuple(CONTRACTS.values())):
        contract = next(contract for contract in CONTRACTS.values() if isinstance(value, contract))
        given = _list_given(value, kinds)
        beside = {name: given.pop(name) for name in list_options(contract) if name in given}
        kind = find_kind(value, kinds)
        if beside.get("name") == kind:
            del beside["name"]
        main = [option.name for option in list_options(type(value)).values() if option.main]
        return {kind: given[main[0]] if main and list(given) == main else given, **beside}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _list_given(value, kinds)
    if isinstance(value, Mapping):
        return {str(key): to_definition(inner, kinds) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_definition(item, kinds) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else _name_of(value)


def _list_given(value: Any, kinds: Kinds | None) -> dict[str, JSON]:
    options = list_options(type(value))
    values = {name: getattr(value, name) for name in options}
    given: dict[str, JSON] = {}
    for name, inner in values.items():
        if inner != options[name].default:
            hidden = options[name].secret and not isinstance(inner, SECRET)
            given[name] = f"${{secret:{name}}}" if hidden else to_definition(inner, kinds)
    for name in CALLED.keys() & given if isinstance(value, PipelineSpec) else ():
        given[CALLED[name]] = given.pop(name)
    if isinstance(value, Dlq) and value.destination is not None:
        kind, options = next(iter(given.pop("destination").items()))
        given[kind] = options
    return given


def _name_of(value: object) -> str:
    module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    return f"{module}:{name}" if module and name else type(value).__qualname__


Found = Mapping[str, "Definition | str"]
"""The definitions by the names of their files. Instead of a broken definition, it has what is wrong with it."""
Stamp = tuple[int, int, int]
_UNSEEN: Stamp = (0, 0, 0)
"""The stamp of a file that exists and cannot be examined. Reading the file shows the reason."""

_PART = re.compile(rb"^[\"']?(?:origins?|destinations)[\"']?[ \t]*:", re.MULTILINE)
"""The keys at the top of a definition that no other YAML file beside it has."""


def list_definitions(folder: Path) -> Sequence[Path]:
    """Return the files of a folder that are definitions, including broken ones, by their names.

    Files with variables, secrets or bundles are not definitions. Raise `Refusal` if the folder cannot be listed.
    """
    with _refuse_unreadable(folder):
        return [file for file in _list_files(folder) if _is_definition(file)]


CASES = ".test.yaml"
"""The ending of the names of files with cases. `orders.test.yaml` has the cases of `orders.yaml`."""


def _list_files(folder: Path) -> Sequence[Path]:
    files = [each for each in sorted(folder.iterdir()) if each.suffix in (".yaml", ".yml") and each.name[0] != "."]
    return [each for each in files if not each.name.endswith(CASES)]


@contextlib.contextmanager
def _refuse_unreadable(folder: Path) -> Iterator[None]:
    """Raise `Refusal` if the folder does not exist, or cannot be listed."""
    if folder.is_file():
        raise Refusal(f"{folder} is a file, and its folder was expected.", hint=f"Name the folder: {folder.parent}")
    if not folder.is_dir():
        raise Refusal(f"There is no directory {folder}.", hint="Name the directory with the definitions.")
    try:
        yield
    except OSError as error:
        raise Refusal(
            f"The directory {folder} cannot be listed: {error.strerror}.", hint="Give this user the right to."
        ) from error


def _is_definition(file: Path) -> bool:
    try:
        return file.is_file() and _PART.search(file.read_bytes()) is not None
    except OSError:
        return True  # reading it later shows the reason


@dataclass(kw_only=True)
class DefinitionsFolder:
    """The present definitions of a directory. A file that is still being written is not read yet."""

    path: Path
    load: Callable[[Path], Definition]
    _stamps: dict[str, Stamp] = field(default_factory=dict)
    """The time, the size and the number of each file when it was read."""
    _found: dict[str, Definition | str] = field(default_factory=dict)
    _unsettled: dict[str, Stamp] = field(default_factory=dict)

    def open(self) -> Found:
        """Return the definitions in the folder. Raise `Refusal` if the folder cannot be read."""
        with _refuse_unreadable(self.path):
            self._unsettled = self._list_stamps()
        self.find_changes()
        return dict(self._found)

    def find_changes(self) -> Found | None:
        """Return all definitions if something changed since the last call, or else None.

        A change counts once two looks in a row see the same. A directory that cannot be read has not changed.
        """
        try:
            stamps = self._list_stamps()
        except OSError:
            return None
        settled = {file for file, stamp in stamps.items() if self._unsettled.get(file) == stamp}
        new = sorted(file for file in settled if self._stamps.get(file) != stamps[file])
        gone = [file for file in self._stamps if file not in stamps]
        self._unsettled = stamps
        for file in gone:
            del self._stamps[file], self._found[file]
        for file in new:
            self._stamps[file] = stamps[file]
            self._found[file] = self.read(file)
        return dict(self._found) if new or gone else None

    def read(self, file: str) -> Definition | str:
        """Return the present definition in a file, or what is wrong with it.

        Only a regular file is read, because opening a named pipe may never end.
        """
        try:
            if (self.path / file).exists() and not (self.path / file).is_file():
                return f"{file}: expected a regular file; rename or move what has this name"
            return self.load(self.path / file)
        except WherryError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 -- a definition may name any code of the user
            return f"{file}: {type(error).__name__}: {error}"

    def _list_stamps(self) -> dict[str, Stamp]:
        stamps = {}
        for file in _list_files(self.path):
            try:
                status = file.stat()
            except FileNotFoundError:
                continue
            except OSError:
                stamps[file.name] = _UNSEEN
                continue
            stamps[file.name] = (status.st_mtime_ns, status.st_size, status.st_ino)
        return stamps
