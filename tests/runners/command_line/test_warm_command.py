"""`wherry warm` where it is not needed. Tests that start a Spark are in `tests/scenarios/test_warm.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.command_line import cli


@pytest.mark.parametrize("version", ["17.3", "client.4.9"])
@pytest.mark.parametrize("remote", ["", "unix:///databricks/sockets/spark"])
def test_on_databricks_one_sentence_says_that_it_is_not_needed(
    version: str, remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It starts no Spark, and advises nothing that would end the session of the notebook."""
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", version)
    monkeypatch.setenv("SPARK_REMOTE", remote)
    monkeypatch.chdir(tmp_path)
    assert cli.execute(["warm"]) == 1
    said, told = capsys.readouterr()
    assert (said, "On Databricks the session is warm already, so this command is not needed." in told) == ("", True)
    assert "SPARK_REMOTE" not in told


def test_values_without_a_definition_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They would have no effect."""
    monkeypatch.chdir(tmp_path)
    assert cli.execute(["warm", "--set", "run.batch.rows=1"]) == 2
    assert "--set is for a definition, and warm found none or several here" in capsys.readouterr().err
