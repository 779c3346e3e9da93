"""A secret appears only where it is used. `test_protect.py` checks the values of protected columns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from runners.command_line import cli
from runners.command_line.commands import wherry
from runners.pipeline import Pipeline
from runners.state.delta_ledger import DeltaLedger
from tests.scenarios.conftest import ORDERS, Place, make_order

CANARY = "canary7f3a9"
DEFINITION = """
name: orders
origin:
  files:
    path: "landing/*.json"
    format: json
    schema: "id long, email string, amount string"
    options: {comment: "${secret:KEY}"}
stages:
  - filter: "email <> '${secret:KEY}'"
  - require: {not_it: "amount <> '${secret:KEY}'"}
  - require: "id <> 3 or email = '${secret:KEY}'"
  - mask: {columns: {email: hash}, salt: "${secret:KEY}"}
destinations:
  - delta: {table: "default.orders_${secret:KEY}"}
  - name: kept
    delta:
      path: tables/orders
      properties: {wherry.test: "${secret:KEY}"}
      mode: replace
      where: "amount <> '${secret:KEY}' and id <> 4"
dlq: {window: 1000, threshold: 500}
hooks: [{on: [start, success, failure], webhook: "http://127.0.0.1:1/${secret:KEY}", attempts: 1}]
spark:
  conf:
    spark.hadoop.wherry.test.url: "jdbc:postgresql://wherry:${secret:KEY}@localhost/shop"
    spark.sql.warehouse.dir: FOLDER/warehouse
    spark.sql.catalogImplementation: hive
    spark.hadoop.javax.jdo.option.ConnectionURL: "jdbc:derby:;databaseName=FOLDER/metastore;create=true"
    spark.driver.extraJavaOptions: "-Dderby.system.home=FOLDER"
"""

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(place: Place) -> Path:
    """Write four orders. One is good, and the others are refused by conditions that contain the secret."""
    bad = [make_order(2, amount=None), make_order(3), make_order(4)]
    place.land("a.json", [make_order(1), *bad])
    place.define(DEFINITION.replace("FOLDER", str(place.folder)))
    (place.folder / "secrets.yaml").write_text(f"KEY: {CANARY}\n")
    return place.folder


def read_state(state: Path) -> str:
    """Return the rows and the histories of a state's tables, and all of its files, as text."""
    tables = [log.parent for log in state.rglob("_delta_log")]
    texts = [str(DeltaTable(str(table)).to_pyarrow_table().to_pylist()) for table in tables]
    texts += [str(DeltaTable(str(table)).history()) for table in tables]
    texts += [file.read_text(errors="replace") for file in state.rglob("*") if file.is_file()]
    return "\n".join(texts)


def test_a_secret_is_neither_shown_nor_stored(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is not in the output, the logs, the ledger, the DLQ, the run history, a report or the list of processes. Every
    option still gets it."""
    temporary = shop / "temporary"
    temporary.mkdir()
    words = ["run", "pipeline.yaml", "--secrets", "secrets.yaml", "--log-format", "json"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.scenarios.watched", CANARY, *words],
        cwd=shop,
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "TMPDIR": str(temporary), "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    said = ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-4:] == ["exit 0", "ps []", "java True", "setting True"], said
    assert (shop / "warehouse" / f"orders_{CANARY}").exists()
    assert list(temporary.glob("wherry-spark-*.log")) == []
    state = shop / ".wherry" / "orders"
    refused = DeltaTable(str(state / "dlq")).to_pyarrow_table().to_pylist()
    assert sorted(row["code"] for row in refused) == ["REQUIRE", "WHERE", "not_it"]
    assert all("${secret:KEY}" in row["message"] for row in refused)
    assert "hooks[0] (webhook) failed 2 times: it cannot be reached" in said
    asked = [["status"], ["dlq", "show"], ["dlq", "show", "--json"], ["offsets", "--json"], ["validate"]]
    asked += [["runs", "--json"], ["report", "--to", str(temporary / "report.html")]]
    for words in asked:
        assert cli.execute([*words, str(shop / "pipeline.yaml"), "--secrets", str(shop / "secrets.yaml")]) == 0
    said += "".join(capsys.readouterr()) + read_state(state)
    said += "".join(file.read_text(errors="replace") for file in temporary.rglob("*") if file.is_file())
    assert "${secret:KEY}" in said
    assert CANARY not in said


WORDS = {
    "STATE": "succeeded",
    "DIGIT": "1",
    "PLACE": "tables",
    "TABLE": "orders",
    "KEY_OF_A_REPORT": "delivered",
    "LANE": "lane",
    "COLUMN": "email",
    "EMPTY": "",
    "LINES": "x\ny",
    "NUMBER": "2",
}
"""Secrets that equal words of Wherry or parts of a path, or that have an unusual form."""
PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqh\n-----END KEY-----\n"


def test_a_secret_that_equals_a_word_of_wherry_changes_nothing(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports, states, names and paths stay the same, and a second run continues. No message shows the secret."""
    compared = "".join(f"      no_{name}: \"email <> '${{secret:{name}}}'\"\n" for name in (*WORDS, "PEM"))
    text = ORDERS.replace("  - filter:", f"  - require:\n{compared}  - filter:").replace("files: 1}", "files: 1}, RUN")
    file = str(place.define(text.replace("RUN", 'runners: "${secret:NUMBER}"')))
    for name, value in {**WORDS, "PEM": PEM}.items():
        monkeypatch.setenv(name, value)
    for number in (1, 2):
        place.land(f"{number}.json", [make_order(number), make_order(number + 10, email=None)])
        assert cli.execute(["run", file, "--json"]) == 0, capsys.readouterr().err
        out, err = capsys.readouterr()
        said = json.loads(out)
        assert "The secret ${secret:DIGIT} has fewer than 6 characters" in err
        assert (said["status"], said["delivered"], said["nacked"]) == ("succeeded", {"orders": 1}, 1)
        assert list(said["lanes"]) == ["0"]
    found = {}
    for words in (["status"], ["dlq", "show"], ["runs"], ["runs", file, "last"], ["audit"], ["offsets"]):
        typed = words if file in words else [*words, file]
        assert cli.execute([*typed, "--json"]) == 0
        found[words[0]] = json.loads(capsys.readouterr().out)
        assert cli.execute(typed) == 0
        assert "KeyError" not in "".join(capsys.readouterr())
    assert cli.execute(["report", file, "--to", str(place.folder / "report.html")]) == 0
    assert found["audit"]["balanced"] is True
    assert list(found["audit"]["destinations"]) == ["orders"]
    (definition,) = {
        entry.body["definition"]
        for entry in DeltaLedger(place.folder / ".wherry/orders/ledger").read(0)
        if entry.kind == "open"
    }
    kept = json.loads(definition)
    assert (kept["name"], kept["run"]["runners"]) == ("orders", "${secret:NUMBER}")
    assert kept["destinations"][0]["delta"]["path"] == "tables/orders"
    rules = kept["stages"][2]["require"]
    assert rules == {f"no_{name}": f"email <> '${{secret:{name}}}'" for name in (*WORDS, "PEM")}
    assert PEM.splitlines()[1] not in read_state(place.folder / ".wherry/orders")


def test_a_failed_run_shows_no_secret(shop: Path) -> None:
    """Its report, its error, the ledger's copies of both and the output of the command do not contain the secret."""
    pipeline = Pipeline.load(
        shop / "pipeline.yaml", secrets={"KEY": CANARY}, overrides={"dlq.window": "1", "dlq.threshold": "1"}
    )
    report = pipeline.run(check=False)
    assert report.error is not None
    said = [json.dumps(report.json()), str(report), str(report.error), read_state(shop / ".wherry" / "orders")]
    told = ["run", str(shop / "pipeline.yaml"), "--secrets", str(shop / "secrets.yaml"), "--set", "dlq.window=1"]
    again = CliRunner().invoke(wherry, [*told, "--set", "dlq.threshold=1"], standalone_mode=False)
    assert again.return_value == 1
    assert "${secret:KEY}" in report.error.message
    assert [CANARY in each for each in [*said, again.output]] == [False] * 5
