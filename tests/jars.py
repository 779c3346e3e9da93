"""Fetch each JAR that Wherry can ask for with the installed Spark, and print its sum: `python -m tests.jars FOLDER`.

Spark's own resolver fetches them. The lines have the format of `runners/spark/jars.sha256`.
"""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyspark

from origins.spark_versions import find_kafka_package
from runners.spark.jars import PACKAGES
from runners.spark.start import list_settings, list_store_packages

_BLOCK = 1 << 20


def list_choices() -> Iterator[Mapping[str, str]]:
    """Yield the settings of a Spark for each choice of S3, Azure and Kafka."""
    stores = list_store_packages()
    wanted: Sequence[Sequence[str]] = (stores["s3a"], stores["abfss"], [find_kafka_package()])
    for number in range(len(wanted) + 1):
        for chosen in itertools.combinations(wanted, number):
            yield list_settings({}, [package for packages in chosen for package in packages])


def list_coordinates() -> set[str]:
    """Return each `group:artifact:version` that Wherry names for the installed Spark."""
    return {package for choice in list_choices() for package in choice[PACKAGES].split(",")}


def fetch(settings: Mapping[str, str], folder: Path) -> None:
    """Fetch the JARs of these settings into `jars` below the folder. Raise `RuntimeError` if one cannot be fetched."""
    program = Path(pyspark.__file__).with_name("bin") / "spark-submit"
    names = ("spark.jars.packages", "spark.jars.excludes")
    given = [word for name in names if name in settings for word in ("--conf", f"{name}={settings[name]}")]
    words = ["--conf", f"spark.jars.ivy={folder}", *given, "--class", "Nothing", "spark-internal"]
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    if "unresolved dependencies" in done.stderr or "Failed to load class Nothing" not in done.stderr:
        raise RuntimeError(done.stderr[-4000:])


def compute_sums(folder: Path) -> dict[str, str]:
    """Return the sum of each fetched JAR by its name."""
    sums = {}
    for file in sorted((folder / "jars").glob("*.jar")):
        found = hashlib.sha256()
        with file.open("rb") as opened:
            while block := opened.read(_BLOCK):
                found.update(block)
        sums[file.name] = found.hexdigest()
    return sums


def main(folder: Path) -> None:
    """Fetch all choices and print the sums."""
    for settings in list_choices():
        fetch(settings, folder.absolute())
    sys.stdout.writelines(f"{found}  {name}\n" for name, found in compute_sums(folder).items())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
