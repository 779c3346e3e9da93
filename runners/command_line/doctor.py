"""Checks whether this machine can run pipelines: what it has, what it lacks, and how to correct it.

It imports no package of Wherry at the top, so that it still works if foreign packages hide Wherry's packages.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from origins.batch import JSON
    from runners.model.spec import PipelineSpec

PACKAGES = ("origins", "stages", "destinations", "runners")
"""The import packages of this distribution."""


@dataclass(frozen=True, kw_only=True)
class DoctorCheck:
    """The result of one check."""

    name: str
    state: Literal["ok", "problem", "not needed"]
    found: str
    advice: str = ""
    """What to do; empty if nothing needs to be done."""

    def json(self) -> dict[str, JSON]:
        return dict(vars(self))


def examine(state: Path) -> list[DoctorCheck]:
    """Check everything that a run needs. `state` is the place of its state. Starts no Spark."""
    foreign = list(find_foreign_packages())
    if foreign:
        return foreign
    checks = [
        DoctorCheck(name="Python", state="ok", found=f"{platform.python_version()} ({sys.executable})"),
        check_spark(),
    ]
    if os.environ.get("SPARK_REMOTE"):
        elsewhere = "SPARK_REMOTE names a remote Spark"
        checks += [DoctorCheck(name=name, state="not needed", found=elsewhere) for name in ("Java", "JARs")]
    else:
        checks += [check_java_version(), check_jars()]
    return [*checks, check_writable(state)]


def examine_ends(pipeline: PipelineSpec) -> Iterator[DoctorCheck]:
    """Check what the origins and destinations of a pipeline, and of its DLQ, need in addition to Spark."""
    from origins.capabilities import Examinable

    conf = pipeline.spark.conf
    jars = (*pipeline.spark.packages, conf.get("spark.jars", ""), conf.get("spark.jars.packages", ""))
    for each in (*pipeline.every_origin, *pipeline.every_destination, *pipeline.dlq.given_destinations):
        for need in each.examine(jars) if isinstance(each, Examinable) else ():
            yield DoctorCheck(name=type(each).__name__, **vars(need))


def find_foreign_packages() -> Iterator[DoctorCheck]:
    """Yield a problem for each package of Wherry that is missing or hidden by a foreign package of the same name."""
    ours = Path(__file__).resolve().parents[2]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        places = [] if spec is None else [*(spec.submodule_search_locations or [spec.origin or ""])]
        if not places:
            advice = "Install Wherry again:  pip install --force-reinstall wherry"
            yield make_problem("Packages", f"the package '{name}' is missing", advice)
        elif ours / name not in [Path(place).resolve() for place in places]:
            found = f"{places[0]} hides Wherry's own package '{name}'"
            yield make_problem("Packages", found, "Rename it, or remove its folder from PYTHONPATH.")


_OLDEST_RUNTIME = 17
"""The first runtime of Databricks with Spark 4."""


def check_spark(installed: Callable[[str], str] | None = None) -> DoctorCheck:
    """Check the Spark client. `installed` returns the version of a distribution, or an empty text if it is missing."""
    from origins.spark_versions import DELTA, describe_misfit

    of = installed or _find_version
    databricks, pyspark, pandas = of("databricks-connect"), of("pyspark"), of("pandas")
    install = 'pip install "wherry[spark]"'
    if databricks and pyspark:
        found = f"databricks-connect {databricks} and pyspark {pyspark} overwrite each other's files"
        return make_problem("Spark", found, "Uninstall both, then install only the package that you need.")
    if databricks and int(databricks.split(".")[0]) < _OLDEST_RUNTIME:
        found = f"databricks-connect {databricks} has Spark 3.5, but Wherry needs Spark 4"
        return make_problem("Spark", found, 'Take runtime 17.3 LTS or newer:  pip install "databricks-connect>=17.3"')
    if databricks:
        return DoctorCheck(name="Spark", state="ok", found=f"databricks-connect {databricks}")
    if not pyspark:
        return make_problem("Spark", "pyspark is not installed", install)
    misfit = describe_misfit(pyspark)
    if misfit:
        advice = "Unset SPARK_HOME, or install the pyspark that is there." if "SPARK_HOME" in misfit else install
        return make_problem("Spark", misfit, advice)
    if of("delta-spark") not in ("", DELTA):
        return make_problem(
            "Spark", f"delta-spark {of('delta-spark')} is installed, but Delta {DELTA} is started", install
        )
    if pandas and int(pandas.split(".")[0]) > 2:
        return make_problem(
            "Spark", f"pandas {pandas} is installed, but pyspark {pyspark} needs pandas 2", 'pip install "pandas<3"'
        )
    return DoctorCheck(name="Spark", state="ok", found=f"pyspark {pyspark}, Delta {DELTA}")


def check_java_version() -> DoctorCheck:
    from origins.errors import WherryError
    from runners.spark.start import check_java

    try:
        return DoctorCheck(name="Java", state="ok", found=check_java())
    except WherryError as error:
        return make_problem("Java", error.message, error.hint)
    except OSError as error:
        return make_problem("Java", f"java cannot be started: {error}", "Set JAVA_HOME to a Java 17 or 21.")


def check_jars(unreachable: Callable[[str], str] | None = None) -> DoctorCheck:
    """Check that Delta's JARs exist or can be fetched. `unreachable` returns why an address cannot be read."""
    from origins.spark_versions import find_parts

    group, artifact, version = find_parts().delta.split(":")
    jar = f"{artifact}-{version}.jar"
    fetched = Path.home() / ".ivy2.5.2" / "jars"
    if (fetched / f"{group}_{jar}").exists():
        return DoctorCheck(name="JARs", state="ok", found=f"Delta {version} is in {fetched}")
    repository = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY") or "https://repo1.maven.org/maven2/"
    address = f"{repository.rstrip('/')}/{group.replace('.', '/')}/{artifact}/{version}/{jar}"
    why = (unreachable or _try_address)(address)
    if why:
        found = f"Delta {version} is not in {fetched}, and {address} cannot be read: {why}"
        advice = f"Name a mirror in DEFAULT_ARTIFACT_REPOSITORY, or copy {fetched.parent} from a machine that has it."
        return make_problem("JARs", found, advice)
    return DoctorCheck(name="JARs", state="ok", found="not here yet; Spark downloads them at its first start")


def check_writable(state: Path) -> DoctorCheck:
    """Check that the state's place can be written, and that it has hard links, which stop a second writer."""
    there = next(folder for folder in (state, *state.absolute().parents) if folder.exists())
    try:
        with tempfile.TemporaryDirectory(dir=there, prefix=".wherry-doctor-") as name:
            first = Path(name, "first")
            first.write_text("a")
            os.link(first, Path(name, "second"))
    except OSError as error:
        advice = "Set `state:` to a directory on a disk that can be written and has hard links."
        return make_problem("State", f"{there} cannot hold the state: {error.strerror or error}", advice)
    return DoctorCheck(name="State", state="ok", found=f"{state} can be written")


def make_problem(name: str, found: str, advice: str) -> DoctorCheck:
    return DoctorCheck(name=name, state="problem", found=found, advice=advice)


def _find_version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _try_address(address: str) -> str:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=5):  # noqa: S310
            return ""
    except (urllib.error.URLError, OSError, ValueError) as error:
        return str(error)
