"""The operations on the definitions of a folder. `DefinitionRules` decides what a caller may store or run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec

from runners.definitions.definition import Definition
from runners.model.errors import Refusal
from runners.model.masking import without
from runners.service import messages
from runners.service.deeds import make_etag
from runners.service.operation import Caller, Changed, Forbidden, NotFound, Right
from runners.service.service import Service

_NAMED = re.compile(r"""^["']?name["']?[ \t]*:[ \t]*["']?([\w-]+)["']?[ \t]*(?:#.*)?$""", re.MULTILINE)
"""The line with the name of a pipeline, if it is written plainly."""


def get_definition(service: Service, caller: Caller, ask: messages.GetDefinition) -> messages.DefinitionText:
    """Show the file of a pipeline, with the hash that a change of it must name."""
    path = service.find(ask.pipeline).path
    assert path is not None
    content = path.read_bytes()
    text = without(service.hidden, content.decode("utf-8-sig"))
    return messages.DefinitionText(pipeline=ask.pipeline, file=path.name, definition=text, etag=make_etag(content))


def validate_definition(service: Service, caller: Caller, ask: messages.ValidateDefinition) -> messages.ValidDefinition:
    """Say whether this could be the definition of a pipeline. Nothing is kept, and no row is read."""
    found = check_definition(service, caller, ask)
    text = msgspec.json.decode(found.text)
    return messages.ValidDefinition(pipeline=ask.pipeline, hash=found.hash, definition=text)


def put_definition(service: Service, caller: Caller, ask: messages.PutDefinition) -> messages.StoredDefinition:
    """Create or replace the definition of a pipeline. A run that works keeps the definition that it began with."""
    check_definition(service, caller, ask)
    file, content = _name_file(service, ask.pipeline), ask.definition.encode()
    _check_free(service, file)
    with _hold_file(service, file, ask.etag) as replaced:
        _note_name(service, file)
        new = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        try:
            with new.open("xb") as opened:
                opened.write(content)
                opened.flush()
                os.fsync(opened.fileno())
            new.replace(file)
        finally:
            new.unlink(missing_ok=True)
    return messages.StoredDefinition(pipeline=ask.pipeline, file=file.name, etag=make_etag(content), replaced=replaced)


def delete_definition(service: Service, caller: Caller, ask: messages.DeleteDefinition) -> messages.RemovedDefinition:
    """Remove the definition of a pipeline. Its state, its refused rows and its tables stay."""
    _check_sees_all(caller)
    file = _name_file(service, ask.pipeline)
    with _hold_file(service, file, ask.etag) as there:
        if not there:
            raise NotFound(f"There is no file {file.name}.")
        _note_name(service, file)
        file.unlink()
    return messages.RemovedDefinition(pipeline=ask.pipeline, file=file.name)


def load_given(service: Service, caller: Caller, ask: messages.StartRun) -> Definition:
    """Return the definition that came with a run. It is not stored, and its state is where that of its name is.

    Raise `Forbidden` without the right to change definitions, and `Refusal` if the folder has one of this name.
    """
    if caller.right < Right.ADMIN:
        raise Forbidden(f"{caller.name} needs the right to admin for a run with its own definition.")
    definition = check_definition(service, caller, ask)
    file = _name_file(service, ask.pipeline)
    if file.exists() or ask.pipeline in service.list_definitions().definitions:
        raise Refusal(
            f"{ask.pipeline} has a definition in the folder, and a run of it uses that.",
            hint="Leave out the definition, or give it another name.",
        )
    _check_free(service, file)
    _note_name(service, file)
    return definition


def check_definition(
    service: Service, caller: Caller, ask: messages.ValidateDefinition | messages.PutDefinition | messages.StartRun
) -> Definition:
    """Return the definition that a caller sent. Raise `DefinitionError` with what is refused or wrong."""
    _check_sees_all(caller)
    parameters = ask.parameters if isinstance(ask, messages.StartRun) else {}
    service.rules.check_parameters(parameters, ask.definition)
    service.rules.check(ask.definition, ask.pipeline, parameters)
    return service.load_with(_name_file(service, ask.pipeline), ask.pipeline, ask.definition, parameters)


def _check_free(service: Service, file: Path) -> None:
    """Raise `Refusal` if the name of this file belongs, or may belong, to a pipeline of a person at the machine.

    A caller's definition would get its state.
    """
    name, catalog = file.stem, service.list_definitions()
    known = catalog.definitions.get(name)
    if known is not None and known.path is not None and known.path.name != file.name:
        raise Refusal(f"{name} is in {known.path.name} already.", hint="Change that file on its machine.")
    for other in catalog.broken:
        if other != file.name and _may_have_name(file.with_name(other), name):
            raise Refusal(f"{other} is broken, and may be the definition of {name}.", hint="Mend it on its machine.")
    if known is None and file.with_name(".wherry").joinpath(name).exists() and not _name_note(service, file).exists():
        raise Refusal(
            f"There is a state of {name}, and no caller made it.",
            hint="Choose another name, or remove the state on its machine.",
        )


def _may_have_name(file: Path, name: str) -> bool:
    try:
        named = _NAMED.findall(file.read_text("utf-8-sig"))
    except (OSError, ValueError):
        return True
    return not named or name in named


def _name_note(service: Service, file: Path) -> Path:
    return service.deeds.log.parent / "names" / file.stem


def _note_name(service: Service, file: Path) -> None:
    """Note that a caller may use this name, and the state of it."""
    note = _name_note(service, file)
    note.parent.mkdir(mode=0o700, exist_ok=True)
    note.touch()


def _check_sees_all(caller: Caller) -> None:
    if caller.pipelines is not None:
        raise Forbidden(f"{caller.name} may see only some pipelines, and a definition can read the data of others.")


def _name_file(service: Service, pipeline: str) -> Path:
    service.rules.check_name(pipeline)
    return service.folder.path / f"{pipeline}.yaml"


@contextlib.contextmanager
def _hold_file(service: Service, file: Path, etag: str) -> Iterator[bool]:
    """Keep other callers away from the definitions inside the block. Yield whether the file exists.

    Raise `Changed` if its content has another hash, and `DefinitionError` if no caller could have written it.
    """
    with (service.deeds.log.parent / "definitions.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        content = _read(file)
        if etag != ("" if content is None else make_etag(content)):
            now = "does not exist" if content is None else "has another etag" if etag else "exists already"
            raise Changed(
                f"Nothing was changed: {file.name} {now}.",
                hint="Get the definition again, and send its etag. A new definition has none.",
            )
        if content is not None:
            try:
                service.rules.check(content.decode("utf-8-sig"), file.stem)
            except ValueError as error:
                raise Refusal(f"{file.name} is not UTF-8.", hint="Change it on its machine.") from error
        yield content is not None


def _read(file: Path) -> bytes | None:
    """Return the content of a file, or None if there is none. Raise `Refusal` if it is no regular file."""
    try:
        if not stat.S_ISREG(file.lstat().st_mode):
            raise Refusal(f"{file.name} is no regular file.", hint="Change it on its machine.")
        return file.read_bytes()
    except FileNotFoundError:
        return None
