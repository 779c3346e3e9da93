"""The name of a person that the ledger keeps."""

from __future__ import annotations

import getpass
import socket
from types import SimpleNamespace

import pytest

from runners.operations.pipeline_access import sign


def test_a_person_is_the_user_of_the_machine() -> None:
    """The reason stands beside the name."""
    assert sign("a test") == {"who": f"{getpass.getuser()}@{socket.gethostname()}", "reason": "a test"}


def test_on_databricks_a_person_is_the_user_of_the_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the machine everyone is root."""
    from pyspark.sql import SparkSession

    asked = []

    def answer(text: str) -> SimpleNamespace:
        asked.append(text)
        return SimpleNamespace(collect=lambda: [("ada@example.com",)])

    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "client.4.9")
    monkeypatch.setattr(SparkSession, "getActiveSession", classmethod(lambda _: SimpleNamespace(sql=answer)))
    assert sign("a test") == {"who": "ada@example.com", "reason": "a test"}
    assert asked == ["SELECT current_user()"]
