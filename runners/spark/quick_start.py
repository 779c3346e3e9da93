"""The quick start of a local Spark: it runs Java directly, with the JARs and classes that earlier starts found.

Spark's script starts a JVM to build the command of another JVM. That JVM lets Ivy look for JARs that are already
present, and then reads and checks thousands of classes. The results are stored in the user's cache: a recipe, and an
archive of classes that the JVM maps into its memory. Without them Spark starts in its usual way.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from runners.spark.jars import list_local_jars

SWITCH = "WHERRY_QUICK_START"
"""The environment variable that turns the quick start off, with the value `off`."""

OPTIONS_OF_THE_JVM = "spark.driver.extraJavaOptions"

_FORMAT = 1
"""The version of the stored format. Increase it with each change of what is stored."""

_PACKAGES = ("spark.jars.packages", "spark.jars.excludes", "spark.jars.repositories", "spark.jars.ivy")
"""The settings that decide which JARs Spark has."""

_SCRIPTED = (
    *("spark.driver.default", "spark.driver.extra", "spark.driver.userClassPath", "spark.jars", "spark.files"),
    *("spark.archives", "spark.submit.", "spark.master", "spark.executor.userClassPath", "spark.plugins"),
)
"""The prefixes of settings that only Spark's script can take, except for those above."""

_HARMLESS = (
    *("SPARK_LOCAL_DIRS", "SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_PUBLIC_DNS", "SPARK_USER"),
    *("SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"),
)
"""The variables with the prefix `SPARK_` that the script ignores. pyspark itself sets the last two."""

_ELSEWHERE = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "PYSPARK_SUBMIT_ARGS")

_GIVES_OPTIONS = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
"""The variables from which Java itself takes options."""

_VAGUE = ("SNAPSHOT", "latest", "+", "[", "(", ",")
"""The parts of a package's version that mean that it may change."""

_LONGEST = 100_000
"""The longest argument that a program can get, roughly."""

_ROOM = 1 << 30
"""How many bytes must be free before an archive of about 200 MB is made."""

_ARCHIVES, _RECIPES, _TRIES = 2, 20, 3
"""How many archives and recipes are kept at most, and how often Wherry tries to make an archive."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to start the JVM in one environment."""

    java: str
    options: Sequence[str]
    """The options that Spark adds to the user's options for the JVM."""
    class_path: Sequence[str]
    files: Mapping[str, Sequence[int]]
    """The size and the time of each JAR that was fetched."""
    archive: Sequence[int] = ()
    """The size and the time of the archive of classes, once it is complete."""
    tries: int = 0
    """How often Wherry began to make the archive."""


class QuickStart:
    """The recipe and the archive of one environment: this Java, this pyspark, and these packages."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.key = folder, key
        self._file = folder / f"{key}.json"
        self._archive = folder / f"{key}.jsa"
        self.recipe = self._read()

    @property
    def lacks_archive(self) -> bool:
        """Whether an archive should be made."""
        return self.recipe is not None and not self._has_archive() and self.recipe.tries < _TRIES

    def build_command(self, settings: Mapping[str, str], options: Sequence[str] = ()) -> list[str]:
        """Return the command that starts Java with these settings, and with more options for the JVM."""
        assert self.recipe is not None
        recipe = self.recipe
        # By default the JVM prints problems of an archive on standard output, which belongs to Wherry.
        quiet = ["-Xlog:disable", "-Xlog:all=warning:stderr"]
        shared = [*quiet, f"-XX:SharedArchiveFile={self._archive}"] if self._has_archive() and not options else []
        memory = [f"-Xmx{settings['spark.driver.memory']}"] if "spark.driver.memory" in settings else []
        theirs = settings.get(OPTIONS_OF_THE_JVM, "").split()
        words = [recipe.java, "-cp", ":".join(recipe.class_path), *memory, *shared, *options, *theirs, *recipe.options]
        words.append("org.apache.spark.deploy.SparkSubmit")
        for key, value in settings.items():
            words += ["--conf", f"{key}={value}"] if key not in _PACKAGES else []
        return [*words, "pyspark-shell"]

    def learn(self, settings: Mapping[str, str], jars: str, jvm: Any) -> None:
        """Store how the running JVM was started, and which JARs it got."""
        bean, system = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean(), jvm.java.lang.System
        given = [word for name in _GIVES_OPTIONS for word in os.environ.get(name, "").split()]
        given += settings.get(OPTIONS_OF_THE_JVM, "").split()
        options = [str(each) for each in bean.getInputArguments()]
        fetched = list_local_jars(jars)
        class_path = [*str(system.getProperty("java.class.path")).split(":"), *fetched]
        if len(fetched) != len(jars.split(",")) or any(":" in each for each in fetched):
            return
        if sum(len(each) + 1 for each in class_path) > _LONGEST or any(map(_brings_python, fetched)):
            return
        self._write(
            Recipe(
                java=os.path.join(str(system.getProperty("java.home")), "bin", "java"),
                options=[each for each in options if each not in given and not each.startswith("-Xmx")],
                class_path=class_path,
                files={each: measure_file(Path(each)) for each in fetched},
            )
        )
        self._tidy()

    def forget(self) -> None:
        """Remove a recipe and an archive that did not work."""
        for file in (self._file, self._archive):
            with contextlib.suppress(OSError):
                file.unlink()
        self.recipe = None

    def note_use(self) -> None:
        """Update the recipe's time, so that frequently used recipes are kept longest."""
        with contextlib.suppress(OSError):
            os.utime(self._file)

    @contextlib.contextmanager
    def make_archive(self) -> Iterator[list[str]]:
        """Give the options of a JVM that makes the archive at its end.

        The JVM must have ended at the end of this block. The archive gets its name once it is complete and on the disk.
        There are no options if another process makes the archive, or if the disk has too little room.
        """
        with self._lock() as alone:
            self.recipe = self._read()
            if not alone or not self.lacks_archive or shutil.disk_usage(self.folder).free < _ROOM:
                yield []
                return
            assert self.recipe is not None
            self._write(replace(self.recipe, tries=self.recipe.tries + 1))
            part = self._archive.with_suffix(".part")
            part.unlink(missing_ok=True)
            try:
                yield ["-Xlog:disable", f"-XX:ArchiveClassesAtExit={part}"]
                with part.open("rb") as whole:
                    os.fsync(whole.fileno())
                part.replace(self._archive)
                self._write(replace(self.recipe, archive=measure_file(self._archive)))
            finally:
                part.unlink(missing_ok=True)
        self._tidy()

    @contextlib.contextmanager
    def _lock(self) -> Iterator[bool]:
        """Give whether this process is the only one in this block."""
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False
        finally:
            os.close(handle)

    def _read(self) -> Recipe | None:
        """Return the recipe, if none of its files has changed."""
        try:
            found = Recipe(**json.loads(self._file.read_bytes()))
            whole = all([*measure_file(Path(file))] == [*then] for file, then in found.files.items())
        except (OSError, ValueError, TypeError, AttributeError):
            return None
        return found if whole and os.access(found.java, os.X_OK) else None

    def _has_archive(self) -> bool:
        try:
            return self.recipe is not None and [*self.recipe.archive] == [*measure_file(self._archive)]
        except OSError:
            return False

    def _write(self, recipe: Recipe) -> None:
        part = self._file.with_name(f"{self._file.name}.{os.getpid()}")
        try:
            part.write_text(json.dumps(asdict(recipe)), encoding="utf-8")
            part.replace(self._file)
            self.recipe = recipe
        finally:
            part.unlink(missing_ok=True)

    def _tidy(self) -> None:
        """Remove the least recently used recipes, and archives without a recipe."""
        recipes = sorted(self.folder.glob("*.json"), key=lambda each: each.stat().st_mtime, reverse=True)
        for old in recipes[_RECIPES:]:
            old.unlink(missing_ok=True)
        kept = [each for each in recipes[:_RECIPES] if each.with_suffix(".jsa").exists()][:_ARCHIVES]
        for archive in self.folder.glob("*.jsa"):
            if archive.with_suffix(".json") not in kept:
                archive.unlink(missing_ok=True)


def find_quick_start(java: str | None, settings: Mapping[str, str]) -> QuickStart | None:
    """Return the quick start with this Java and these settings.

    It is None if only Spark's script can start it, or if there is no folder to store anything.
    """
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false") or java is None:
        return None
    spark = _find_spark()
    release = Path(java).resolve().parents[1] / "release"
    folder = find_private_folder()
    if spark is None or folder is None or not _can_take(settings):
        return None
    try:
        jars = sorted((each.name, *measure_file(Path(each.path))) for each in os.scandir(spark / "jars"))
        facts = [_FORMAT, str(spark), jars, str(release), release.read_text(encoding="utf-8")]
    except (OSError, ValueError):
        return None
    facts += [settings.get(key, "") for key in _PACKAGES]
    return QuickStart(folder, hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16])


def make_archive_later(quick: QuickStart, memory: str, process: int) -> None:
    """Make the archive in a separate process, which continues after this one.

    Call it at the end of process `process`.
    """
    if os.getpid() != process:
        return
    with contextlib.suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", "runners.spark.make_archive", str(quick.folder), quick.key, memory],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def list_environment() -> dict[str, str]:
    """Return what Spark's script adds to the environment of the JVM."""
    spark = str(_find_spark())
    loaded = {"SPARK_HOME": spark, "SPARK_CONF_DIR": f"{spark}/conf", "SPARK_ENV_LOADED": "1"}
    return {**loaded, "SPARK_SCALA_VERSION": "2.13", "PYTHONHASHSEED": "0"}


def _can_take(settings: Mapping[str, str]) -> bool:
    """Whether a recipe starts the same Spark with these settings as Spark's script."""
    given = {name: value for name, value in os.environ.items() if value and name not in _HARMLESS}
    if any(name in given for name in _ELSEWHERE) or any(name.startswith("SPARK_") for name in given):
        return False
    if any(key.startswith(_SCRIPTED) and key not in (*_PACKAGES, OPTIONS_OF_THE_JVM) for key in settings):
        return False
    if any(sign in settings.get(OPTIONS_OF_THE_JVM, "") for sign in "'\"\\"):
        return False
    versions = [each.rpartition(":")[2] for each in settings.get("spark.jars.packages", "").split(",")]
    return not any(sign in version for version in versions for sign in _VAGUE)


def _find_spark() -> Path | None:
    """Return the folder of the installed pyspark, if nothing in it was configured."""
    found = importlib.util.find_spec("pyspark")
    folder = Path(found.origin).resolve().parent if found is not None and found.origin else None
    if folder is None or not (folder / "bin" / "spark-submit").exists():
        return None
    conf = folder / "conf"
    return None if conf.is_dir() and any(each.suffix != ".template" for each in conf.iterdir()) else folder


def find_private_folder() -> Path | None:
    """Return this user's folder for what a start of Spark keeps; None unless it belongs only to this user."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        folder = (base if base.is_absolute() else Path("~/.cache").expanduser()) / "wherry" / "spark"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if is_private(folder) else None


def is_private(folder: Path) -> bool:
    """Whether it is a folder, not a link, that only this user can enter."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _brings_python(jar: str) -> bool:
    """Whether Spark adds the JAR to Python's path because of modules that no other package has."""
    try:
        with zipfile.ZipFile(jar) as inside:
            modules = {name.partition("/")[0].removesuffix(".py") for name in inside.namelist() if name.endswith(".py")}
    except zipfile.BadZipFile:
        return True
    return any("." in module or importlib.util.find_spec(module) is None for module in modules)


def measure_file(file: Path) -> tuple[int, int]:
    """Return the size and the time of a file."""
    found = file.stat()
    return found.st_size, found.st_mtime_ns
