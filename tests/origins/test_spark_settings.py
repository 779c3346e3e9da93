"""Every setting of Spark that Wherry touches is in one table, with the platforms where it may be touched."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from origins.spark_settings import ANSI, CASE, NANOS_AS_LONG, SETTINGS, TIME_ZONE, begin_sharing, put_back_all, read_all
from origins.spark_versions import Platform, find_platform
from tests.databricks.limits import SERVERLESS_SETTINGS

ROOT = Path(__file__).parents[2]
FILES = [file for folder in ("origins", "stages", "destinations", "runners") for file in ROOT.glob(f"{folder}/**/*.py")]
TABLE = ROOT / "origins/spark_settings.py"
STARTS = {"runners/command_line/doctor.py"} | {f"runners/spark/{name}.py" for name in ("quick_start", "start")}
_METHODS = {"get", "set", "unset", "isModifiable", "getAll"}


class Conf(dict[str, str]):
    """The settings of a session, which a test can look at."""

    set, unset, getAll = dict.__setitem__, dict.__delitem__, property(lambda self: dict(self))  # noqa: N815 -- pyspark's


def make_session(**conf: str) -> Any:
    """Return a session with these settings."""
    return Session(conf=Conf(conf))


class Session:
    """A session that has only settings."""

    def __init__(self, conf: Any = None) -> None:
        self.conf = conf


def name(file: Path) -> str:
    return str(file.relative_to(ROOT))


def list_touched(file: Path) -> list[str]:
    """Return the expressions with which a file reads or changes settings. Those of a definition are not among them."""
    found = [ast.unparse(node) for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if _touches(node)]
    return [each for each in sorted(found) if not re.match(r"(self\.)?(pipeline|self)\.(spark\.)?conf\.get$", each)]


def _touches(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "RuntimeConf"
    inner = node.value if isinstance(node, ast.Attribute) and node.attr in _METHODS else None
    return isinstance(inner, ast.Attribute) and inner.attr == "conf"


def test_only_the_table_touches_settings_of_a_session() -> None:
    """`late.py` has the settings of a session before it is started. A new client gets those of the old one."""
    found = {name(file): touched for file in FILES if file != TABLE and (touched := list_touched(file))}
    assert found == {
        "runners/spark/late.py": ["made.conf.set", "self._session.start().conf.get"],
        "runners/spark/session.py": ["RuntimeConf(client)", "RuntimeConf(client)"],
    }


def test_a_key_of_the_table_is_spelled_in_the_table_only() -> None:
    """Other files use its name. Files about a Spark that Wherry starts may spell it."""
    keys = {setting.key for setting in SETTINGS}
    spelled = {
        (name(file), node.value)
        for file in FILES
        if file != TABLE and name(file) not in STARTS
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in keys
    }
    assert spelled == set()


def test_each_setting_of_the_table_is_used_and_has_a_need() -> None:
    """A setting that no code uses is deleted from the table."""
    names = [line.partition(" = Setting(")[0] for line in TABLE.read_text().splitlines() if " = Setting(" in line]
    assert len(names) == len(SETTINGS)
    text = "\n".join(file.read_text(encoding="utf-8") for file in FILES if file != TABLE)
    unused = [each for each, setting in zip(names, SETTINGS, strict=True) if not re.search(rf"\b{each}\b", text)]
    assert [each for each in unused if not SETTINGS[names.index(each)].value] == []
    assert [setting.key for setting in SETTINGS if not setting.need.endswith(".")] == []
    assert Counter(setting.key for setting in SETTINGS).most_common(1)[0][1] == 1


def test_serverless_sees_no_other_key_than_the_six() -> None:
    """Each other key is refused there, and the refusal prints a trace."""
    assert {setting.key for setting in SETTINGS if Platform.SERVERLESS in setting.platforms} <= SERVERLESS_SETTINGS


class Remote(Session):
    """A session of Spark Connect."""


Remote.__module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize(
    ("version", "kind", "platform"),
    [
        ("", Session, Platform.ANY),
        ("", Remote, Platform.ANY),
        ("17.3", Session, Platform.DEDICATED),
        ("17.3", Remote, Platform.STANDARD),
        ("client.4.9", Remote, Platform.SERVERLESS),
        ("client.4.9", Session, Platform.SERVERLESS),
    ],
)
def test_the_platform_is_known_by_its_variable_and_by_the_session(
    version: str, kind: type[Any], platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Serverless and standard clusters have sessions of Spark Connect. A dedicated cluster has a classic one."""
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", version)
    assert find_platform(kind()) is platform


def test_a_setting_is_not_touched_where_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is neither read nor set nor changed for a block. What may be touched is."""
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "client.4.9")
    spark = make_session()
    CASE.write(spark, "true")
    with CASE.change(spark, "true"):
        assert (CASE.read(spark, "false"), read_all(spark), spark.conf) == (None, None, {})
    with ANSI.change(spark, "false"):
        assert ANSI.read(spark, "") == "false"
    assert spark.conf == {}


def test_a_shared_session_gets_everything_back() -> None:
    """Settings that were not set are unset. No setting changes for a block, because other threads would see it."""
    spark = make_session(**{TIME_ZONE.key: "Asia/Tokyo"})
    begin_sharing(spark)
    for zone in ("UTC", "Europe/Vienna"):
        TIME_ZONE.write(spark, zone)
    NANOS_AS_LONG.write(spark, "true")
    with CASE.change(spark, "true"):
        assert spark.conf == {TIME_ZONE.key: "Europe/Vienna", NANOS_AS_LONG.key: "true"}
    put_back_all(spark)
    assert spark.conf == {TIME_ZONE.key: "Asia/Tokyo"}
