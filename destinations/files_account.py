"""A folder of batches is asked what it got: the note in each batch's folder, and the files beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from destinations.account import Account, Brought, Loss
from destinations.folders import NOTE, Folders
from origins.batch import JSON

_PROOF = "each batch's folder, how many rows its note counts, and how many bytes lie beside it"


def account(folders: Folders) -> Account:
    """What the folder can show."""
    there = folders.id != ""
    return Account(
        place=str(folders.root),
        proof=_PROOF if there else "nothing: there is no such folder",
        there=there,
        id=folders.id,
        brought=[each for folder, note in _notes(folders.root) for each in _brought(folder, note)],
    )


def _notes(root: Path) -> Iterator[tuple[Path, Mapping[str, JSON]]]:
    folders = Folders(root)
    for note in sorted(root.glob(f"_lane=*/_batch=*/{NOTE}")):
        for told in folders.notes(str(note.parent.relative_to(root)).replace("[", "[[]")):
            yield note.parent, told


def _brought(folder: Path, note: Mapping[str, JSON]) -> Iterator[Brought]:
    if note.get("rows") is None:
        return
    for key in note["keys"]:
        plan, _, destination = key.rpartition("/")
        label = {**note, "plan": plan, "destination": destination, "key": key}
        yield Brought(label=label, rows=note["rows"], together=note["keys"], loss=_loss(folder, note))


def _loss(folder: Path, note: Mapping[str, JSON]) -> Loss | None:
    """What is wrong with the files beside a note."""
    files = [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(("_", "."))]
    size = sum(file.stat().st_size for file in files)
    if size == note["bytes"]:
        return None
    code = "FILE_CHANGED" if files else "FILE_GONE"
    return Loss(code=code, said=f"{folder} holds {size:,} bytes instead of {note['bytes']:,}", whole=not files)
