"""A Spark that starts late."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from destinations.delta.lock import SparkCommits, set_commits
from origins.names import is_one_disk
from origins.spark_versions import is_connect
from runners.model.error_kinds import classify
from runners.model.errors import WorkCancelled
from runners.spark import late
from runners.spark.late import LateCommits, LateSession, LateSpark
from runners.spark.own_session import make_own_session
from runners.spark.session import give_up_waiting, is_here, is_late
from runners.spark.session_pool import cancel, tag_work

SETTINGS = {"spark.sql.ansi.enabled": "true", "spark.app.name": "wherry"}


class Started:
    """A double of a session that was started."""

    def __init__(self) -> None:
        self.conf = self
        self.known: dict[str, str] = {"spark.sql.default": "from Spark"}
        self.named: list[str] = []

    def get(self, key: str, *default: str) -> str:
        """Return a setting."""
        return self.known.get(key, *default)

    def set(self, key: str, value: str) -> None:
        """Change a setting."""
        self.known[key] = value

    def table(self, name: str) -> str:
        """Stand in for any call that needs Spark."""
        return f"rows of {name}"


class Starts:
    """A function that starts such a session and counts the starts."""

    def __init__(self) -> None:
        self.session = Started()
        self.times = 0
        self.during: Callable[[], None] = lambda: None

    def __call__(self) -> Any:
        self.times += 1
        self.during()
        return self.session


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Starts:
    """Return the function that starts Spark. The session notes the names of jobs."""
    made = Starts()
    monkeypatch.setattr(late, "name_jobs", lambda spark, group, pool: spark.named.append(f"{group} {pool}"))
    monkeypatch.setattr(late, "has_context", lambda: False)
    return made


@pytest.fixture
def spark(starts: Starts) -> Any:
    """Return a session of a Spark that has not started."""
    return LateSession(LateSpark(starts, SETTINGS), lambda given: given)


def test_settings_are_known_before_spark_starts(spark: Any, starts: Starts) -> None:
    """A missing setting gives the caller's default, as with Spark."""
    assert spark.conf.get("spark.app.name") == "wherry"
    assert spark.conf.get("spark.local.dir", "") == ""
    assert spark.conf.get("spark.local.dir", None) is None
    assert spark.conf.getAll == SETTINGS
    assert (is_late(spark), is_here(spark), is_connect(spark), starts.times) == (True, True, False, 0)


def test_a_default_of_spark_is_read_from_spark(spark: Any, starts: Starts) -> None:
    """Only Spark knows it."""
    assert spark.conf.get("spark.sql.default") == "from Spark"
    assert (is_late(spark), starts.times) == (False, 1)


def test_settings_from_before_the_start_are_set_in_spark(spark: Any, starts: Starts) -> None:
    """Settings that were unset again are not."""
    spark.conf.set("spark.sql.shuffle.partitions", 3)
    spark.conf.set("spark.sql.caseSensitive", True)
    spark.conf.unset("spark.sql.caseSensitive")
    assert spark.table("orders") == "rows of orders"
    assert starts.session.known == {"spark.sql.default": "from Spark", "spark.sql.shuffle.partitions": "3"}


def test_all_sessions_start_one_spark(spark: Any, starts: Starts) -> None:
    """Threads that need it at the same time wait for the same start."""
    sessions = [LateSession(spark.late, lambda given: given) for _ in range(8)]
    threads = [threading.Thread(target=each.start) for each in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert starts.times == 1


IMPORTS = """
import sys
from runners.spark.late import LateSpark

there = []
LateSpark(lambda: there.append("pyspark.sql" in sys.modules), {}).start_ahead().result(60)
print(there)
"""


def test_pyspark_is_imported_before_the_starting_thread_begins() -> None:
    """Two threads that import its parts at the same time block each other, and one of them fails."""
    given = {**os.environ, "PYTHONPATH": os.getcwd()}
    ran = subprocess.run([sys.executable, "-c", IMPORTS], env=given, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "[True]\n"), ran.stderr


def test_a_start_that_failed_ahead_raises_when_spark_is_needed(spark: Any, starts: Starts) -> None:
    """The thread that started Spark ahead reports nothing."""
    starts.during = raise_missing_java
    assert spark.late.start_ahead().exception(10) is not None
    with pytest.raises(RuntimeError, match="no Java"):
        spark.table("orders")


def test_work_has_the_name_that_its_thread_gave_it_before_the_start(spark: Any, starts: Starts) -> None:
    """The name allows the work to be cancelled."""
    with tag_work(spark, "run-7", "pool"):
        assert starts.session.named == []
        spark.table("orders")
        spark.table("orders")
    assert starts.session.named == ["run-7 pool"]
    with tag_work(spark, "run-7-ends", "pool"):
        assert starts.session.named == ["run-7 pool", "run-7-ends pool"]


def test_no_work_of_a_cancelled_group_begins(spark: Any, starts: Starts) -> None:
    """This is also true if Spark is started a moment later."""
    with tag_work(spark, "run-7"):
        cancel(spark, "run-7")
        with pytest.raises(WorkCancelled) as cancelled:
            spark.table("orders")
    assert (classify(cancelled.value).is_cancelled, starts.times) == (True, 0)
    with tag_work(spark, "run-8"):
        assert spark.table("orders") == "rows of orders"


def test_work_that_gives_up_does_not_wait_for_the_start(spark: Any, starts: Starts) -> None:
    """A user may have asked to stop. Other work gets the same Spark."""
    asked, going = threading.Event(), threading.Event()
    starts.during = lambda: assert_set(going)
    threading.Timer(0.2, asked.set).start()
    giving_up = give_up_waiting(spark, "run-7", asked.is_set)
    with giving_up, tag_work(spark, "run-7-plans"), pytest.raises(WorkCancelled):
        spark.table("orders")
    going.set()
    with tag_work(spark, "run-7"):
        assert spark.table("orders") == "rows of orders"
    assert starts.times == 1


def test_a_start_that_failed_is_tried_again(spark: Any, starts: Starts) -> None:
    """The next run of a scheduler tries it."""
    starts.during = raise_missing_java
    with pytest.raises(RuntimeError, match="no Java"):
        spark.table("orders")
    starts.during = lambda: None
    assert spark.table("orders") == "rows of orders"


def test_spark_is_used_only_after_a_commit_without_it_has_ended(spark: Any, starts: Starts, tmp_path: Path) -> None:
    """Otherwise two writers of one process would take the same version of a table."""
    up, commits = threading.Event(), LateCommits(spark)
    starts.during = up.set

    def use() -> None:
        spark.table("orders")
        done.append("used")

    done: list[str] = []
    user = threading.Thread(target=use)
    with commits.hold(tmp_path):
        user.start()
        assert up.wait(10)
        done.append("committed")
        assert is_late(spark)
    user.join()
    assert done == ["committed", "used"]


def test_commits_are_held_by_spark_after_its_start(spark: Any, starts: Starts, tmp_path: Path) -> None:
    """The session has the object that holds them."""
    held: list[Path] = []

    class Held(SparkCommits):
        def can_be_held(self) -> bool:
            return False

        def hold(self, table: Path) -> Any:
            held.append(table)
            return threading.Lock()

    commits = LateCommits(spark)
    assert commits.can_be_held()
    set_commits(cast("Any", starts.session), Held())
    spark.table("orders")
    assert not commits.can_be_held()
    with commits.hold(tmp_path):
        assert held == [tmp_path]


def test_a_separate_session_starts_no_spark(spark: Any, starts: Starts) -> None:
    """It has the time zone of a run, and reads the disk of this machine."""
    own = make_own_session(spark, "Europe/Vienna")
    assert own.conf.get("spark.sql.session.timeZone") == "Europe/Vienna"
    assert is_one_disk(own)
    assert is_late(own)
    assert starts.times == 0


def raise_missing_java() -> None:
    """Raise, because Spark cannot be started."""
    raise RuntimeError("no Java")


def assert_set(event: threading.Event) -> None:
    """Wait until the event is set."""
    assert event.wait(10)


@pytest.mark.parametrize(("master", "is_one"), [("local[2]", True), ("spark://10.0.0.5:7077", False), ("yarn", False)])
def test_only_a_local_master_surely_reads_the_files_of_this_machine(starts: Starts, master: str, is_one: bool) -> None:
    """The settings show this before the start."""
    spark: Any = make_own_session(LateSession(LateSpark(starts, {"spark.master": master}), lambda given: given))  # type: ignore[arg-type]
    assert (is_here(spark), is_one_disk(spark), starts.times) == (is_one, is_one, 0)
