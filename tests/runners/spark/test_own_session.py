"""A run has the same meaning in each kind of session: a new one, a clone of the given one, or the given one itself."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from destinations.delta import Delta
from origins.files import Files
from origins.files.changes import Changes
from origins.files.formats import FileRows
from origins.files.listing import parse_pattern
from origins.schema import parse_schema
from origins.spark_settings import SETTINGS, TIME_ZONE
from origins.spark_versions import is_connect
from runners.definitions.definition import definition_of
from runners.model.errors import Refusal
from runners.model.spec import SparkOptions
from runners.pipeline import Pipeline
from runners.running.run import PipelineRun
from runners.spark.own_session import make_own_session, put_settings_back, use_alone
from runners.spark.session import obtain
from runners.spark.start import SparkMissing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.databricks.proxy import DatabricksProxy
    from tests.scenarios.shared_jvm import Server

pytestmark = pytest.mark.spark
ZONE, TOKYO = "Europe/Vienna", "Asia/Tokyo"


JOB = """
import importlib.machinery, importlib.util, sys
import pyspark.sql
class Builder:
    asked = 0
    def getOrCreate(self):
        self.asked += 1
        return "the session of the job"
pyspark.sql.SparkSession.builder = Builder()
own = importlib.machinery.ModuleSpec("pyspark.dbutils", None)
sys.modules["pyspark.dbutils"] = importlib.util.module_from_spec(own)
from runners.spark.session import obtain_now
session = obtain_now({"spark.some.key": "1"}, ["a:b:1"])
print(f"{session}, asked for {pyspark.sql.SparkSession.builder.asked} time")
"""


def lack(*_: object) -> None:
    raise AttributeError("cloneSession")


def break_clone(*_: object) -> None:
    raise AttributeError("thread_local")


def connect(address: str, **methods: Callable[..., object]) -> SparkSession:
    """Return a session of a Spark Connect server, with these methods in place of the client's."""
    from pyspark.sql.connect.session import SparkSession as Remote

    session: Any = Remote(address)
    for name, method in methods.items():
        setattr(session, name, method)
    return session  # type: ignore[no-any-return]


def connect_anew(address: str) -> SparkSession:
    """Return a session of a client that makes new ones, as later clients of Databricks do."""
    return connect(address, newSession=lambda: connect_anew(address), cloneSession=break_clone)


@pytest.fixture(params=["new", "new on Connect", "clone", "shared: no clone"])
def given(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session as a notebook has it, with settings, a database and a view of its own."""
    if request.param == "new":
        server_session: SparkSession = request.getfixturevalue("spark_server")
        if is_connect(server_session):
            pytest.skip("a classic session is tried without --spark connect")
        spark = server_session.newSession()
    else:
        server: Server = request.getfixturevalue("connect_server")
        address = server.get().connect
        methods: dict[str, dict[str, Callable[..., object]]] = {
            "new on Connect": {"newSession": lambda: connect_anew(address)},
            "clone": {},
            "shared: no clone": {"cloneSession": lack},
        }
        spark = connect(address, **methods[request.param])
    spark.sql("CREATE DATABASE IF NOT EXISTS of_the_notebook")
    spark.sql("USE of_the_notebook")
    spark.conf.set(TIME_ZONE.key, TOKYO)
    spark.conf.set("spark.sql.caseSensitive", "true")
    yield spark
    if is_connect(spark):
        spark.client.close()


def is_shared(spark: SparkSession) -> bool:
    with put_settings_back():
        return make_own_session(spark) is spark


class TestEachWay:
    def test_a_definition_means_the_same(self, given: SparkSession) -> None:
        """The time zone is that of the pipeline, and upper and lower case do not count."""
        with put_settings_back():
            own = make_own_session(given, ZONE)
            (row,) = own.sql("SELECT A, CURRENT_TIMEZONE() AS zone FROM (SELECT 1 AS a)").collect()
            assert (row[0], row[1]) == (1, ZONE)
            with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
                own.sql("SELECT CAST('x' AS INT)").collect()

    def test_the_given_session_has_its_settings_afterwards(self, given: SparkSession) -> None:
        """Settings that it did not have are gone. A block that raises puts them back too."""
        before = {setting.key: given.conf.get(setting.key, None) for setting in SETTINGS}

        def fail() -> None:
            with put_settings_back():
                make_own_session(given, ZONE)
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        assert {setting.key: given.conf.get(setting.key, None) for setting in SETTINGS} == before
        assert (before[TIME_ZONE.key], before["spark.sql.caseSensitive"]) == (TOKYO, "true")

    def test_the_catalog_and_the_database_of_the_notebook_hold(self, given: SparkSession) -> None:
        """Threads of the run begin there too."""
        with put_settings_back():
            own = make_own_session(given)
            for each in (own, make_own_session(own)):
                assert (each.catalog.currentCatalog(), each.catalog.currentDatabase()) == (
                    "spark_catalog",
                    "of_the_notebook",
                )

    def test_another_catalog_of_the_notebook_holds(self, given: SparkSession) -> None:
        """`USE CATALOG` holds in the session of the run, in those of its threads, and afterwards in the notebook."""
        given.catalog.setCurrentCatalog("second")
        with put_settings_back():
            own = make_own_session(given)
            sessions = (own, make_own_session(own))
            assert [each.sql("SELECT current_catalog()").collect()[0][0] for each in sessions] == ["second", "second"]
        assert given.catalog.currentCatalog() == "second"
        given.catalog.setCurrentCatalog("spark_catalog")

    def test_each_of_two_runs_has_its_settings(self, given: SparkSession) -> None:
        """In one session, the second one waits for the end of the first one."""
        seen, begins = [], threading.Event()

        def run_second() -> None:
            begins.set()
            with put_settings_back():
                other = make_own_session(given, "America/Lima")
                seen.append(other.conf.get(TIME_ZONE.key))

        thread = threading.Thread(target=run_second)
        with put_settings_back():
            own = make_own_session(given, ZONE)
            thread.start()
            begins.wait()
            thread.join(1 if own is given else None)
            seen.append(own.conf.get(TIME_ZONE.key))
        thread.join()
        expected = [ZONE, "America/Lima"]
        assert seen == (expected if is_shared(given) else expected[::-1])
        assert given.conf.get(TIME_ZONE.key) == TOKYO

    @pytest.mark.connect
    def test_a_pipeline_delivers_into_the_database_of_the_notebook(
        self, given: SparkSession, spark_server: SparkSession, tmp_path: Path
    ) -> None:
        """A table without a catalog and a schema is in the database that the notebook uses."""
        if is_connect(given) is not is_connect(spark_server):
            pytest.skip("a process has functions of one kind of Spark, and --spark chooses it")
        table = f"orders_{abs(hash(str(tmp_path))):x}"
        (tmp_path / "landing").mkdir()
        (tmp_path / "landing" / "a.json").write_text('{"id": 1, "at": "2026-01-01 00:30:00"}\n')
        pipeline = Pipeline(
            name=table,
            origins=[Files(path=str(tmp_path / "landing"), format="json", schema="id int, at timestamp")],
            destinations=[Delta(table=table)],
            state=str(tmp_path / "state"),
        )
        definition = definition_of(pipeline)
        run = PipelineRun(pipeline=definition.pipeline, text=definition.text, hash=definition.hash, spark=given)
        report = run.carry()
        assert (report.status, report.error) == ("succeeded", None)
        rows = given.sql(f"SELECT id, unix_seconds(at) FROM of_the_notebook.{table}").collect()
        assert [tuple(row) for row in rows] == [(1, 1767227400)]


def test_a_command_that_changes_a_setting_of_a_shared_session_needs_it_alone(connect_server: Server) -> None:
    """It is refused while another run works in the session."""
    given = connect(connect_server.get().connect, cloneSession=lack)
    with put_settings_back():
        own = make_own_session(given)
        with use_alone(own):
            pass
        refused: list[Exception] = []

        def try_it() -> None:
            try:
                with use_alone(own):
                    pass
            except Refusal as error:
                refused.append(error)

        thread = threading.Thread(target=try_it)
        thread.start()
        thread.join()
    assert ["Another run works" in str(error) for error in refused] == [True]
    with use_alone(own):
        pass
    given.client.close()


class TestServerless:
    @pytest.fixture(autouse=True)
    def compute(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "client.4.9")

    def test_nothing_is_tried_that_serverless_refuses(self, serverless: DatabricksProxy) -> None:
        """A session beside the given one is made and used with the six settings."""
        given = connect(serverless.address, cloneSession=lack)
        with put_settings_back():
            own = make_own_session(given, ZONE)
            assert own.sql("SELECT current_timezone()").collect() == [(ZONE,)]
        assert given.sql("SELECT current_timezone()").collect() != [(ZONE,)]
        assert serverless.refusals == []
        given.client.close()

    @pytest.mark.parametrize("content", ["{", ""])
    def test_a_run_leaves_out_no_file_that_cannot_be_read(
        self, connect_server: Server, tmp_path: Path, content: str
    ) -> None:
        """No setting can be touched there, so the reader gets an option. A session may have other defaults."""
        given = connect(connect_server.get().connect)
        given.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
        (tmp_path / "bad.parquet").write_text("PAR1" + content)
        reader = FileRows(place=parse_pattern(f"{tmp_path}/*.parquet"), format="parquet", options={}, changes=Changes())
        with put_settings_back():
            own = make_own_session(given)
            frame = reader.read(own, ["bad.parquet"], StructType().add("id", "long"), places=False)
            with pytest.raises(Exception, match=r"bad\.parquet"):
                frame.collect()
        given.client.close()

    def test_the_type_of_a_timestamp_is_asked(self, connect_server: Server) -> None:
        """A query tells what `timestamp` means in a schema."""
        given = connect(connect_server.get().connect)
        kinds = []
        for meaning in ("TIMESTAMP_NTZ", "TIMESTAMP_LTZ"):
            given.conf.set("spark.sql.timestampType", meaning)
            kinds.append(parse_schema(given, "at timestamp", "here").fields[0].dataType.simpleString())
        assert kinds == ["timestamp_ntz", "timestamp"]
        given.client.close()

    def test_a_session_that_distinguishes_case_is_refused(
        self, serverless: DatabricksProxy, connect_server: Server
    ) -> None:
        """Only a workspace could change that, and columns would get other values."""
        given = connect(connect_server.get().connect)
        given.conf.set("spark.sql.caseSensitive", "true")
        with pytest.raises(SparkMissing, match=r"caseSensitive = true, but the definition needs false"):
            make_own_session(given)
        given.client.close()


def test_on_databricks_a_session_is_asked_for_and_none_is_started(tmp_path: Path) -> None:
    """A job may have no active session yet. Without Java, no JVM can be started."""
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    environment |= {"DATABRICKS_RUNTIME_VERSION": "17.3", "JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", JOB], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "the session of the job, asked for 1 time\n", done.stderr


def test_on_databricks_the_session_of_the_notebook_is_taken(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other Spark is started."""
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert type(obtain()) is type(spark)


def test_settings_that_a_given_session_ignores_are_named(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    """Settings that it has are not named, and no value is, since some are secret."""
    zone = str(spark.conf.get(TIME_ZONE.key))
    obtain(SparkOptions(conf={TIME_ZONE.key: zone, "spark.hadoop.fs.s3a.secret.key": "hush", "spark.some.key": "1"}))
    (warned,) = [record.getMessage() for record in caplog.records if "do not count" in record.getMessage()]
    assert warned.endswith(": spark.hadoop.fs.s3a.secret.key, spark.some.key.")
