"""What one start of Spark keeps for the next one."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest

from runners.spark import start
from runners.spark.quick_start import QuickStart, find_quick_start, make_archive_later
from runners.spark.start import SparkMissing, list_settings
from tests.small_disk import SmallDisk

SETTINGS = list_settings({"spark.driver.memory": "2g"})
RELEASE = 'JAVA_VERSION="17.0.15"\n'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache folder, in an environment without variables for Spark."""
    for name in [name for name in os.environ if name.startswith(("SPARK_", "HADOOP_", "WHERRY_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def java(tmp_path: Path) -> str:
    """Return the path of a double of Java."""
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    (tmp_path / "jdk" / "release").write_text(RELEASE)
    program = tmp_path / "jdk" / "bin" / "java"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    """Return a JAR that was fetched."""
    with ZipFile(tmp_path / "delta.jar", "w") as inside:
        inside.writestr("io/delta/Table.class", b"")
    return tmp_path / "delta.jar"


def find_kept(java: str, **conf: str) -> QuickStart:
    """Return what is kept for these settings."""
    found = find_quick_start(java, {**SETTINGS, **conf})
    assert found is not None
    return found


def make_jvm(java: str) -> Any:
    """Return a double of a JVM that was started with that Java."""
    options = [
        "-Xmx2g",
        *SETTINGS["spark.driver.extraJavaOptions"].split(),
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
    ]
    bean = SimpleNamespace(getInputArguments=lambda: options)
    properties = {"java.class.path": "/spark/conf:/spark/core.jar", "java.home": str(Path(java).parents[1])}
    jvm: Any = SimpleNamespace()
    jvm.java = SimpleNamespace(lang=SimpleNamespace(System=SimpleNamespace(getProperty=properties.__getitem__)))
    jvm.java.lang.management = SimpleNamespace(ManagementFactory=SimpleNamespace(getRuntimeMXBean=lambda: bean))
    return jvm


def learn_jars(java: str, *jars: Path) -> QuickStart:
    """Return what is kept after such a JVM got these JARs."""
    find_kept(java).learn(SETTINGS, ",".join(each.as_uri() for each in jars), make_jvm(java))
    return find_kept(java)


def make_archive(quick: QuickStart, content: bytes = b"classes") -> None:
    """Make an archive as a JVM does."""
    with quick.make_archive() as options:
        write_archive(options, content)


def write_archive(options: list[str], content: bytes = b"classes") -> None:
    """Write the archive that a JVM with these options writes at its end."""
    Path(options[-1].partition("=")[2]).write_bytes(content)


def test_the_next_start_runs_java_directly_with_the_fetched_jars(java: str, jar: Path) -> None:
    """The JARs come after those of Spark. If two classes have one name, that of Spark counts, as with its script."""
    command = learn_jars(java, jar).build_command({**SETTINGS, "spark.log.level": "FATAL"})
    assert command[:3] == [java, "-cp", f"/spark/conf:/spark/core.jar:{jar}"]
    options = command[3 : command.index("org.apache.spark.deploy.SparkSubmit")]
    ours = SETTINGS["spark.driver.extraJavaOptions"].split()
    assert options == ["-Xmx2g", *ours, "--add-opens=java.base/java.lang=ALL-UNNAMED"]
    assert "spark.log.level=FATAL" in command
    assert not any("spark.jars.packages" in word for word in command)


def test_options_of_the_user_are_not_kept(java: str, jar: Path, cache: Path) -> None:
    """They may be secret, and belong to another run."""
    learn_jars(java, jar)
    (kept,) = (cache / "wherry" / "spark").iterdir()
    assert "DontCompileHugeMethods" not in kept.read_text()
    assert (cache / "wherry" / "spark").stat().st_mode & 0o777 == 0o700


def test_a_changed_jar_is_noticed(java: str, jar: Path) -> None:
    """Spark's script fetches missing JARs again."""
    assert learn_jars(java, jar).recipe is not None
    jar.write_bytes(b"another one")
    assert find_kept(java).recipe is None
    jar.unlink()
    assert find_kept(java).recipe is None


def test_another_java_has_a_separate_recipe(java: str, jar: Path) -> None:
    """This is also true of an update in the same place."""
    learn_jars(java, jar)
    Path(java).parents[1].joinpath("release").write_text(RELEASE.replace("17.0.15", "21.0.1"))
    assert find_kept(java).recipe is None


def test_jars_with_python_modules_are_left_to_spark(java: str, tmp_path: Path) -> None:
    """Spark puts them on Python's path. Installed modules are found without it."""
    with ZipFile(tmp_path / "frames.jar", "w") as inside:
        inside.writestr("json/tool.py", b"")
    assert learn_jars(java, tmp_path / "frames.jar").recipe is not None
    with ZipFile(tmp_path / "frames.jar", "w") as inside:
        inside.writestr("graphs_of_frames/__init__.py", b"")
    assert learn_jars(java, tmp_path / "frames.jar").recipe is None


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.jars": "/own.jar"},
        {"spark.driver.extraClassPath": "/own.jar"},
        {"spark.jars.ivySettings": "/own.xml"},
        {"spark.master": "spark://elsewhere:7077"},
        {"spark.driver.extraJavaOptions": "-Da='b c'"},
        {"spark.jars.packages": "org.example:other:1.0-SNAPSHOT"},
        {"spark.jars.packages": "org.example:other:[1.0,2.0)"},
    ],
)
def test_settings_that_only_the_script_understands_are_left_to_it(java: str, conf: dict[str, str]) -> None:
    """So are packages that may change."""
    assert find_quick_start(java, {**SETTINGS, **conf}) is None


@pytest.mark.parametrize("name", ["SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "PYSPARK_SUBMIT_ARGS"])
def test_an_environment_that_configures_spark_is_left_to_the_script(
    java: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Wherry does not know the resulting settings."""
    monkeypatch.setenv(name, "/some/where")
    assert find_quick_start(java, SETTINGS) is None


def test_an_unsafe_cache_folder_is_not_used(java: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a file, other users can write it, or it belongs to another user. Wherry would start a program from it."""
    cache.touch()
    assert find_quick_start(java, SETTINGS) is None
    cache.unlink()
    folder = find_kept(java).folder
    folder.chmod(0o770)
    assert find_quick_start(java, SETTINGS) is None
    folder.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 4_711)
    assert find_quick_start(java, SETTINGS) is None


def test_an_unreadable_recipe_counts_as_missing(java: str, jar: Path, cache: Path) -> None:
    """The next start writes another one."""
    learn_jars(java, jar)
    (kept,) = (cache / "wherry" / "spark").iterdir()
    for content in ("", "[]", '{"java": 1}', "\x00"):
        kept.write_text(content)
        assert find_kept(java).recipe is None
    assert learn_jars(java, jar).recipe is not None


def test_the_jvm_gets_a_complete_archive(java: str, jar: Path) -> None:
    """Its messages about the archive go to standard error."""
    quick = learn_jars(java, jar)
    assert quick.lacks_archive
    make_archive(quick)
    command = find_kept(java).build_command(SETTINGS)
    assert f"-XX:SharedArchiveFile={quick.folder / quick.key}.jsa" in command
    assert "-Xlog:all=warning:stderr" in command
    assert not find_kept(java).lacks_archive


def test_a_changed_archive_is_not_used(java: str, jar: Path) -> None:
    """It may be cut off, and the JVM would map it into its memory."""
    quick = learn_jars(java, jar)
    make_archive(quick)
    (quick.folder / f"{quick.key}.jsa").write_bytes(b"class")
    assert not any("SharedArchiveFile" in word for word in find_kept(java).build_command(SETTINGS))
    assert find_kept(java).lacks_archive


def test_the_archive_is_made_after_the_second_start(java: str, jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made at the end of the process. A machine with only one start makes none."""
    later: list[tuple[Any, ...]] = []
    monkeypatch.setattr(atexit, "register", lambda *given: later.append(given))
    session: Any = SimpleNamespace(conf={"spark.jars": jar.as_uri()}, _jvm=make_jvm(java))
    start._prepare_next_start(session, SETTINGS, find_kept(java))
    assert later == []
    quick = find_kept(java)
    start._prepare_next_start(session, SETTINGS, quick)
    assert later == [(make_archive_later, quick, "2g", os.getpid())]
    make_archive(quick)
    start._prepare_next_start(session, SETTINGS, find_kept(java))
    assert len(later) == 1


def test_only_one_of_two_processes_makes_an_archive(java: str, jar: Path) -> None:
    """The other process ends at once."""
    quick = learn_jars(java, jar)
    with quick.make_archive() as ours:
        with find_kept(java).make_archive() as theirs:
            assert theirs == []
        write_archive(ours)
    with find_kept(java).make_archive() as later:
        assert later == []


def test_no_archive_is_made_on_a_disk_that_is_almost_full(
    java: str, jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive needs about 200 MB, and other programs need the rest."""
    quick = learn_jars(java, jar)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    with quick.make_archive() as options:
        assert options == []


def test_a_full_or_read_only_disk_keeps_nothing(
    java: str, jar: Path, small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start works without a cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(small_disk.folder))
    quick = find_kept(java)
    small_disk.fill()
    session: Any = SimpleNamespace(conf={"spark.jars": jar.as_uri()}, _jvm=make_jvm(java))
    start._prepare_next_start(session, SETTINGS, quick)
    assert [*quick.folder.iterdir()] == []
    small_disk.empty()
    small_disk.read_only()
    start._prepare_next_start(session, SETTINGS, quick)
    assert [*quick.folder.iterdir()] == []
    assert quick.recipe is None


def test_two_archives_are_kept(tmp_path: Path, java: str, jar: Path) -> None:
    """They belong to the environments that were used last."""
    keys = []
    for number, version in enumerate(("17.0.1", "17.0.2", "17.0.3")):
        Path(java).parents[1].joinpath("release").write_text(version)
        quick = learn_jars(java, jar)
        os.utime(quick.folder / f"{quick.key}.json", (number + 1, number + 1))
        make_archive(quick)
        keys.append(quick.key)
    assert {each.stem for each in quick.folder.glob("*.jsa")} == {*keys[1:]}
    assert len([*quick.folder.glob("*.json")]) == 3


def test_a_quick_start_that_fails_is_repeated_with_the_script_of_spark(
    java: str, jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recipe is removed, so that the next start does not fail with it."""
    tried: list[bool] = []

    def launch(settings: Any, waiting: Any, noise: int, command: Any = (), environment: Any = None) -> bool:
        tried.append(bool(command))
        if command:
            raise RuntimeError("Java gateway process exited before sending its port number")
        return True

    monkeypatch.setattr(start, "launch_jvm", launch)
    monkeypatch.setattr(start, "check_java", lambda: "Java 17")
    quick = learn_jars(java, jar)
    assert start._launch(SETTINGS, quick, 2)
    assert tried == [True, False]
    assert find_kept(java).recipe is None


def test_without_java_there_is_no_quick_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names what is missing."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_quick_start(None, SETTINGS) is None
    with pytest.raises(SparkMissing, match="Java is missing"):
        start.start({})


STARTS = """
import json, sys
from origins.spark_private import find_jvm
from runners.spark.start import start

spark = start({"spark.sql.shuffle.partitions": "2"})
spark.range(3).write.format("delta").mode("overwrite").save(sys.argv[1])
rows = spark.read.format("delta").load(sys.argv[1]).count()
words = open(f"/proc/{find_jvm().pid}/cmdline").read()
print(json.dumps([rows, "spark.jars.packages" in words, "SharedArchiveFile" in words]))
"""


def run_start(tmp_path: Path, **environment: str) -> list[int | bool]:
    """Return the number of rows that a new process wrote and read.

    Also return whether Ivy looked for JARs, and whether the JVM used an archive.
    """
    given = {**os.environ, "PYTHONPATH": os.getcwd(), **environment}
    words = [sys.executable, "-c", STARTS, str(tmp_path / "table")]
    ran = subprocess.run(words, env=given, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    said: list[int | bool] = json.loads(ran.stdout)
    return said


@pytest.mark.spark
@pytest.mark.long
def test_a_start_uses_the_recipe_and_the_archive_of_earlier_starts(tmp_path: Path, cache: Path) -> None:
    """A damaged archive, like one of another Java, only costs time."""
    assert run_start(tmp_path) == [3, True, False]
    (recipe,) = (cache / "wherry" / "spark").glob("*.json")
    makes = [sys.executable, "-m", "runners.spark.make_archive", str(recipe.parent), recipe.stem, "2g"]
    subprocess.run(makes, check=True, timeout=600)
    assert run_start(tmp_path) == [3, False, True]
    assert run_start(tmp_path, WHERRY_QUICK_START="off") == [3, True, False]
    archive = recipe.with_suffix(".jsa")
    archive.unlink()
    archive.write_bytes(b"no classes")
    found = archive.stat()
    recipe.write_text(json.dumps({**json.loads(recipe.read_text()), "archive": [found.st_size, found.st_mtime_ns]}))
    assert run_start(tmp_path) == [3, False, True]
