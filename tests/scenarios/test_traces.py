"""The page of all files, tables and locks names everything that runs leave behind."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.child import WHERRY, run
from tests.messages import list_sources
from tests.scenarios.conftest import Place, make_order
from tests.traces import FILES, MACHINE, PROBES, STATE, TABLE, VALUES, list_patterns, list_places, list_unnamed

ALL = """
name: orders
origin:
  files: {path: "landing/*.json", format: json, schema: "id long, email string, amount string"}
stages:
  - claim: {columns: [email], path: values, over: 1KiB}
  - cast: {amount: "decimal(10,2)"}
  - filter: "amount > 0"
destinations:
  - delta: {path: tables/orders}
  - files: {path: files/orders, format: json}
    name: copies
keep_filtered: 30d
dlq: {window: 0}
"""


@pytest.mark.spark
def test_the_page_names_what_a_run_leaves(place: Place) -> None:
    """The run has refused, filtered and large values. Each of its places has something of the page."""
    place.land("a.json", [make_order(1, email="x" * 2_000), make_order(2, amount="?"), make_order(3, amount="-1")])
    report = place.load(ALL).run()
    assert (report.read, report.nacked, report.filtered) == (3, 1, 1)
    assert list_unnamed(place.folder) == []
    assert {heading for _, heading in list_places(place.folder)} == {STATE, TABLE, FILES, VALUES}


def test_a_name_that_the_page_lacks_is_found(tmp_path: Path) -> None:
    """Otherwise the comparison could not fail."""
    (tmp_path / "state/ledger/_delta_log").mkdir(parents=True)
    (tmp_path / "state/surprise").touch()
    assert list_unnamed(tmp_path) == [f"{STATE}: state/surprise"]


@pytest.mark.spark
def test_the_page_names_what_a_process_leaves_among_temporary_files(tmp_path: Path) -> None:
    """The run has a Spark of its own. Some of its files are there only while it works."""
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/a.json").write_text('{"id": 1, "email": "a", "amount": "2"}\n', encoding="utf-8")
    (tmp_path / "orders.yaml").write_text(ALL, encoding="utf-8")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = run([*WHERRY, "run", str(tmp_path / "orders.yaml")], {**os.environ, "TMPDIR": str(temporary)})
    assert done.returncode == 0, done.stderr
    assert list_unnamed(tmp_path) == []
    named = [each.removeprefix("TMPDIR/") for each in list_patterns(MACHINE) if each.startswith("TMPDIR/")]
    left = [each.name for each in temporary.iterdir()]
    assert [name for name in left if not any(fnmatchcase(name, pattern) for pattern in named)] == []


OF_OTHERS = {
    *("blockmgr-*", "spark-*", "*_resources", "artifacts-*", "hsperfdata_*", "tmp*", "liblz4*"),
    *("_change_data", "deletion_vector_*.bin"),
}
"""Names that Spark, Delta, Python or the JVM give."""


def test_each_name_of_the_page_is_in_the_code() -> None:
    """So no row stays when the code no longer makes such a file. A name may be made of several parts."""
    source = "\n".join(file.read_text(encoding="utf-8") for file in list_sources())
    ours = [name for heading in (STATE, TABLE, FILES, VALUES, MACHINE, PROBES) for name in list_patterns(heading)]
    names = {name.rpartition("/")[2] for name in ours} - OF_OTHERS
    words = {word for name in names for word in re.findall("[a-z]{3,}", name)}
    assert [word for word in sorted(words) if word not in source] == []
    assert {"ledger", "prepared", "lane", "writing", "keepers", "probe", "taken"} <= words
