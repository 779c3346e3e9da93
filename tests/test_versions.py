"""`.ci/versions` tries each Spark that Wherry knows, and the documentation names them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from origins.spark_versions import KNOWN, shorten_version
from tests.databricks.notebook import COMPUTES, list_computes, list_oldest_computes
from tests.versions import PAIRS, format_table, list_done, main

HOWTO = Path(__file__).parents[1] / "runners" / "docs" / "howto"


def list_sparks() -> list[str]:
    """Return the version of Spark in each pair."""
    return [re.sub(r"pyspark(\[connect\])?==", "", pair.packages[0]) for pair in PAIRS]


def test_every_known_spark_has_a_pair() -> None:
    """The oldest comes first."""
    assert [shorten_version(spark) for spark in list_sparks()] == [*KNOWN]


def test_the_documentation_has_each_spark() -> None:
    """The rows of its table begin with the version of Spark."""
    rows = (HOWTO / "versions.md").read_text(encoding="utf-8").splitlines()
    assert [spark for spark in list_sparks() if not any(row.startswith(f"| {spark} |") for row in rows)] == []


@pytest.mark.parametrize("compute", COMPUTES)
def test_the_documentation_has_each_compute(compute: str) -> None:
    """Its row names no version of Spark on which the tests do not try it."""
    tries = [
        {spark for spark in list_sparks() if compute in choose(shorten_version(spark))}
        for choose in (list_computes, list_oldest_computes)
    ]
    rows = (HOWTO / "where-it-runs.md").read_text(encoding="utf-8").splitlines()
    (row,) = (row for row in rows if row.startswith(f"| {compute} |"))
    told = [{*re.findall(r"[\d.]+", cell)} for cell in row.split("|")[3:-1]]
    assert [untried for cell, tried in zip(told, tries, strict=True) if (untried := cell - tried)] == []


def test_results_of_this_commit_are_not_made_again(tmp_path: Path) -> None:
    """Those of other commits are."""
    file = tmp_path / "results.json"
    assert [*list_done(file, "a")] == []
    file.write_text('[{"pair": "oldest", "commit": "a"}, {"pair": "newest", "commit": "b"}]')
    (done,) = list_done(file, "a")
    assert done["pair"] == "oldest"
    assert format_table([done]).splitlines()[2].startswith("| oldest |")


def test_an_unknown_pair_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message has the known ones."""
    with pytest.raises(SystemExit):
        main(["eldest", "--into", str(tmp_path)])
    assert "expected oldest, middle, newest, databricks-17.3, databricks-18.0, got eldest" in capsys.readouterr().err
