"""How Spark's workers claim and restore large values, tested without Spark."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from stages.claim import open_store
from stages.claim_store import PREFIX, TableValues, ValueClaims
from stages.claim_worker import claim_rows, restore_rows
from stages.python_call import FunctionCannotRun
from tests.stages.claim.aged_values import store_at

OVER = 1_024
LONG = "x" * (OVER + 1)
NESTED = pa.struct(
    [
        ("s", pa.struct([("text", pa.string()), ("n", pa.int64())])),
        ("a", pa.list_(pa.field("element", pa.string()))),
        ("m", pa.map_(pa.string(), pa.binary())),
        ("deep", pa.list_(pa.struct([("b", pa.binary())]))),
    ]
)


@pytest.fixture(params=["files", "delta"])
def claims(tmp_path: Path, request: pytest.FixtureRequest) -> ValueClaims:
    """A store that does not exist yet."""
    return ValueClaims(open_store(str(tmp_path / "claims"), request.param))


def reopen(claims: ValueClaims) -> ValueClaims:
    """Open the store again, as another task does."""
    is_table = isinstance(claims.store, TableValues)
    return ValueClaims(open_store(claims.store.place, "delta" if is_table else "files"))


def count_values(claims: ValueClaims) -> int:
    """Return the number of values in the store. Each has one file."""
    names = [value.name for value in claims.store.list_values()]
    files = [file for name in names for file in Path(claims.store.place).rglob(f"{name}*")]
    assert len(files) == len(names) == len({*names})
    return len(names)


def claim_texts(claims: ValueClaims, *texts: str | bytes | None) -> list[Any]:
    """Return the texts of a column after they are claimed."""
    kind = pa.binary() if any(isinstance(each, bytes) for each in texts) else pa.string()
    rows = pa.array([{"v": each} for each in texts], pa.struct([("v", kind)]))
    return [row["v"] for row in claim_rows(claims, OVER, rows).to_pylist()]


def restore_texts(claims: ValueClaims, *texts: str | None) -> list[Any]:
    """Return the restored texts, or the problems."""
    rows = pa.array([{"v": each} for each in texts], pa.struct([("v", pa.string())]))
    found = [row for piece in restore_rows(claims, rows) for row in piece.to_pylist()]
    return [row["problem"] or row["values"]["v"] for row in found]


def test_a_value_over_the_limit_becomes_a_reference_and_comes_back(claims: ValueClaims) -> None:
    """A value of exactly the limit, an empty value and NULL remain, and are not stored."""
    texts = claim_texts(claims, LONG, "x" * OVER, "", None)
    assert texts[0].startswith(PREFIX)
    assert len(texts[0]) < 140
    assert texts[1:] == ["x" * OVER, "", None]
    assert count_values(claims) == 1
    assert restore_texts(claims, *texts) == [LONG, "x" * OVER, "", None]


def test_rows_without_large_values_make_no_store(claims: ValueClaims) -> None:
    """They do not even make its folder."""
    assert claim_texts(claims, "a", None) == ["a", None]
    assert not Path(claims.store.place).exists()


def test_a_value_is_stored_once(claims: ValueClaims) -> None:
    """It may come again as text or bytes, in any batch. Each occurrence gets the same reference."""
    first = claim_texts(claims, LONG, LONG, LONG)
    again = claim_texts(reopen(claims), LONG.encode())
    assert {*first, again[0].decode()} == {first[0]}
    assert count_values(claims) == 1


def test_bytes_that_are_no_text_come_back_unchanged(claims: ValueClaims) -> None:
    """They may be in a column of bytes, or in a column of text, where Spark allows them."""
    wrong = b"\xff\x00" * OVER
    for kind in (pa.binary(), pa.string()):
        rows = pa.StructArray.from_arrays([pa.array([wrong, b"ok"], pa.binary()).view(kind)], names=["v"])
        (back,) = restore_rows(claims, claim_rows(claims, OVER, rows))
        assert back.field("values").field("v").view(pa.binary()).to_pylist() == [wrong, b"ok"]


def test_values_inside_nested_values_are_claimed(claims: ValueClaims) -> None:
    """They are in structs, lists, maps and lists of structs. NULL, empty values and keys of maps remain."""
    large = LONG.encode()
    rows = [
        {
            "s": {"text": LONG, "n": 1},
            "a": ["a", LONG, None],
            "m": [(LONG, large), ("k", None)],
            "deep": [{"b": large}],
        },
        {"s": None, "a": None, "m": None, "deep": None},
        {"s": {"text": None, "n": None}, "a": [], "m": [], "deep": [None, {"b": None}]},
        None,
        {"s": {"text": "t", "n": 2}, "a": [LONG + "y"], "m": [("k", b"b")], "deep": [{"b": b"b"}, {"b": large}]},
    ]
    given = pa.array(rows, NESTED)
    claimed = claim_rows(claims, OVER, given)
    assert claimed.type == NESTED
    found = claimed.to_pylist()
    assert found[0]["s"]["text"].startswith(PREFIX)
    assert [str(each)[:13] for each in found[0]["a"]] == ["a", PREFIX, "None"]
    assert found[0]["m"][0] == (LONG, found[0]["s"]["text"].encode())
    assert found[1:4] == rows[1:4]
    assert count_values(claims) == 2
    (back,) = restore_rows(claims, claimed)
    assert back.field("values").to_pylist() == rows
    assert back.field("values").field("s").type == NESTED.field("s").type


@pytest.mark.parametrize("first", range(4))
def test_a_slice_of_an_array_is_read_from_its_start(claims: ValueClaims, first: int) -> None:
    """An Arrow slice shares the values of the whole array."""
    rows = [{"a": [str(at)] * at, "m": [(str(at), LONG.encode())]} for at in range(5)]
    kind = pa.struct([NESTED.field("a"), NESTED.field("m")])
    claimed = claim_rows(claims, OVER, pa.array(rows, kind).slice(first))
    pieces = list(restore_rows(claims, claimed))
    assert [row["values"] for piece in pieces for row in piece.to_pylist()] == rows[first:]


def test_data_that_looks_like_a_reference_comes_back_unchanged(claims: ValueClaims) -> None:
    """It is stored like a large value, so all text that begins like a reference is a reference afterwards."""
    real = claim_texts(claims, LONG)[0]
    forged = [PREFIX, f"{PREFIX}x", f"{PREFIX}{'0' * 64}:5:{'0' * 32}", real[:-1] + ("0" if real[-1] != "0" else "1")]
    forged += [real.replace(":1025:", ":2000:"), real + "\n", f"{PREFIX}{'ü' * 64}:5:", PREFIX + LONG]
    claimed = claim_texts(claims, *forged)
    assert not {*claimed} & {*forged}
    assert restore_texts(claims, *claimed) == forged


@pytest.mark.parametrize("end", [b"5:\xff", b"5:" + b"0" * 31 + b"\xff", b"9" * 5_000 + b":0", b"5:0:0", b"5"])
def test_bytes_that_only_begin_like_a_reference_come_back_unchanged(claims: ValueClaims, end: bytes) -> None:
    """They need not be text, and their length may be no number that Python reads."""
    claim_texts(claims, LONG)
    forged = f"{PREFIX}{'a' * 64}:".encode() + end
    rows = pa.StructArray.from_arrays([pa.array([forged], pa.binary())], names=["v"])
    (back,) = restore_rows(claims, claim_rows(claims, OVER * 10, rows))
    assert back.field("values").field("v").to_pylist() == [forged]
    assert back.field("problem").to_pylist() == [None]


def test_a_reference_stays_a_reference(claims: ValueClaims) -> None:
    """Claiming it again changes nothing, also in a process that has just opened the store."""
    claimed = claim_texts(claims, LONG)
    assert claim_texts(reopen(claims), *claimed) == claimed
    assert count_values(claims) == 1


def spoil_file(claims: ValueClaims, name: str) -> None:
    """Change the file of the value with this hash."""
    (file,) = Path(claims.store.place).rglob(f"{name}*")
    file.write_bytes(b"x")


def test_a_reference_without_a_valid_value_is_a_problem_of_its_row(claims: ValueClaims) -> None:
    """It belongs to another store, or its value is missing or was changed."""
    gone, changed, good = claim_texts(claims, LONG + "a", LONG + "b", LONG + "c")
    names = [each.split(":")[1] for each in (gone, changed)]
    claims.store.delete_values([names[0]])
    spoil_file(claims, names[1])
    found = restore_texts(reopen(claims), gone, changed, f"{PREFIX}abc", good)
    assert found == [
        f"names a value of 1,026 bytes that the store does not have: {names[0]}",
        f"names a value of 1,026 bytes that changed in the store: {names[1]}",
        "is not a reference to a value of this store",
        LONG + "c",
    ]


def test_a_place_without_a_store_fails_the_batch(claims: ValueClaims) -> None:
    """A wrong path refuses no row."""
    with pytest.raises(FunctionCannotRun, match="is not a store of large values"):
        restore_texts(claims, f"{PREFIX}abc")


def test_a_store_below_a_file_fails_the_batch(claims: ValueClaims) -> None:
    """The message names the place."""
    Path(claims.store.place).touch()
    with pytest.raises(FunctionCannotRun, match=r"claims failed: (Not a directory|File exists)"):
        claim_texts(claims, LONG)


@pytest.mark.parametrize("claims", ["files"], indirect=True)
def test_a_truncated_value_is_stored_again(claims: ValueClaims) -> None:
    """Its file has another length than its name says."""
    claimed = claim_texts(claims, LONG)
    spoil_file(claims, claimed[0].split(":")[1])
    assert claim_texts(claims, LONG) == claimed
    assert restore_texts(claims, *claimed) == [LONG]


def test_concurrent_tasks_agree_on_one_key_and_leave_no_other_file(claims: ValueClaims) -> None:
    """Threads open a new store together, and no partial file remains."""
    found: list[list[Any]] = []

    def begin() -> None:
        found.append(claim_texts(reopen(claims), LONG, LONG + "y"))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [found[0]] * 8
    assert restore_texts(claims, *found[0]) == [LONG, LONG + "y"]
    assert count_values(claims) == 2
    assert not any(each.name[0] == "." for each in Path(claims.store.place).rglob("*"))


def test_large_values_are_restored_in_small_pieces(claims: ValueClaims) -> None:
    """So a worker never holds all values of a batch."""
    (reference,) = claim_texts(claims, LONG)
    rows = pa.array([{"v": reference}] * 100, pa.struct([("v", pa.string())]))
    pieces = list(restore_rows(claims, rows))
    assert max(map(len, pieces)) <= 16
    assert sum(map(len, pieces)) == 100


def test_a_value_that_is_claimed_again_gets_a_new_time(claims: ValueClaims) -> None:
    """Its time is that of the last claim."""
    store_at(claims, LONG.encode(), 1)
    (old,) = claims.store.list_values()
    claim_texts(reopen(claims), LONG)
    (again,) = claims.store.list_values()
    assert (old.modified, again.modified > 1_000) == (1, True)
    assert count_values(claims) == 1


@pytest.mark.parametrize("claims", ["delta"], indirect=True)
def test_the_new_values_of_some_rows_make_one_commit_in_a_table(claims: ValueClaims) -> None:
    """A retry without new values makes none."""
    table = Path(claims.store.place, "table")
    texts = [f"{LONG}{number}" for number in range(20)]
    claim_texts(claims, *texts)
    version = DeltaTable(table).version()
    claim_texts(reopen(claims), *texts)
    assert DeltaTable(table).version() == version
    claim_texts(claims, *texts, "a" + LONG, "b" + LONG)
    assert DeltaTable(table).version() == version + 1
    assert count_values(claims) == 22


@pytest.mark.parametrize("claims", ["delta"], indirect=True)
def test_a_commit_is_durable_before_its_references_are_used(
    claims: ValueClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is the first version of the table. `deltalake` does not sync its files."""
    synced: list[str] = []
    monkeypatch.setattr("stages.claim_store._sync", synced.append)
    claim_texts(claims, LONG)
    log = Path(claims.store.place, "table", "_delta_log")
    assert [each for each in synced if each.startswith(str(log))] == [
        *(str(log / f"{0:020}.json"), str(log)),
        *(str(log / f"{1:020}.json"), str(log)),
    ]


@pytest.mark.parametrize("claims", ["delta"], indirect=True)
@pytest.mark.parametrize("lands", [False, True], ids=["another task's commit", "its own commit unknown to it"])
def test_a_failed_commit_stores_no_value_twice(
    claims: ValueClaims, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    """The task reads the table again. A file of the table is never removed."""
    claim_texts(claims, "a" + LONG)
    commit = DeltaTable.create_write_transaction

    def interrupt(table: DeltaTable, *arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)
        if lands:
            commit(table, *arguments, **options)
            raise CommitFailedError("the answer was lost")
        claim_texts(reopen(claims), LONG, "c" + LONG)
        commit(table, *arguments, **options)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", interrupt)
    claimed = claim_texts(claims, LONG, "b" + LONG)
    assert restore_texts(claims, *claimed) == [LONG, "b" + LONG]
    assert count_values(claims) == 3 + (not lands)


@pytest.mark.parametrize("claims", ["delta"], indirect=True)
def test_a_table_that_takes_no_commit_fails_the_batch(claims: ValueClaims, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of attempts is limited."""

    def refuse(*_: Any, **__: Any) -> None:
        raise CommitFailedError("it may not be written")

    monkeypatch.setattr("stages.claim_store.time.sleep", lambda _: None)
    monkeypatch.setattr(DeltaTable, "create_write_transaction", refuse)
    with pytest.raises(FunctionCannotRun, match="claims failed: it may not be written"):
        claim_texts(claims, LONG)


@pytest.mark.parametrize("claims", ["delta"], indirect=True)
def test_old_unused_files_of_a_table_are_deleted(claims: ValueClaims) -> None:
    """They belong to removed values or to no commit. A new file without a commit may still get one."""
    kept, gone = (each.split(":")[1] for each in claim_texts(claims, LONG, LONG + "y"))
    folder = Path(claims.store.place, "table")
    for name, age in (("new", 0), ("old", 8 * 86_400)):
        (folder / f"{name}.parquet").touch()
        os.utime(folder / f"{name}.parquet", (time.time() - age,) * 2)
    claims.store.delete_values([gone])
    assert sorted(file.name[:64] for file in folder.rglob("*.parquet")) == sorted([kept, gone, "new.parquet"])
    DeltaTable(folder).alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 0 days"})
    claims.store.delete_values([])
    assert gone not in {file.name[:64] for file in folder.rglob("*.parquet")}
    assert [value.name for value in claims.store.list_values()] == [kept]
    assert restore_texts(claims, *claim_texts(claims, LONG)) == [LONG]
