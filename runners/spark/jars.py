"""The JARs that Wherry fetches for a Spark. One process fetches them at a time, and compares each with its sum."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from origins.errors import WherryError

PACKAGES = "spark.jars.packages"

KEPT = "~/.ivy2.5.2"
"""The folder in which Spark keeps JARs by default."""

LISTED = Path(__file__).with_name("jars.sha256")
"""One line for each JAR, as `sha256sum` writes and checks it. JARs that only a definition names are not in it."""


class WrongJar(WherryError):
    """A JAR is another one than Wherry expects."""

    code = "JAR"


def read_sums() -> dict[str, str]:
    """Return the sum of each JAR, by the name that Spark gives to its file."""
    lines = LISTED.read_text(encoding="ascii").splitlines()
    return {name: sum_ for sum_, name in (line.split() for line in lines)}


def check_jars(files: Iterable[Path]) -> None:
    """Raise `WrongJar` if one of these files has another sum than the list. Files outside the list pass."""
    sums = read_sums()
    for file in files:
        expected = sums.get(file.name)
        if expected is None or not file.is_file():
            continue
        found = hashlib.sha256(file.read_bytes()).hexdigest()
        if found != expected:
            raise WrongJar(
                f"The JAR {file} has SHA-256 {found}, and Wherry expected {expected}.",
                hint=f"Find out where the file comes from. Then remove it; the next start fetches it:  rm {file}",
            )


def find_kept(settings: Mapping[str, str]) -> Path:
    """Return the folder in which Spark keeps the JARs that it fetched."""
    return Path(settings.get("spark.jars.ivy") or KEPT).expanduser()


def list_local_jars(jars: str) -> list[str]:
    """Return the files of this machine among the JARs that a session names in `spark.jars`."""
    return [unquote(parts.path) for parts in map(urlsplit, jars.split(",")) if parts.scheme in ("", "file")]


@contextlib.contextmanager
def fetch_one_at_a_time(settings: Mapping[str, str]) -> Iterator[None]:
    """Let only one process at a time start a Spark that may have to fetch JARs.

    Two processes that fetch the same JARs would take each other's incomplete files for complete ones.
    """
    kept = find_kept(settings)
    packages = settings.get(PACKAGES, "").split(",")
    if all((kept / "jars" / _name_file(each)).exists() for each in packages if each):
        yield
        return
    try:
        kept.mkdir(parents=True, exist_ok=True)
        handle = os.open(kept, os.O_RDONLY)
    except OSError:  # Spark reports what is wrong with the folder
        yield
        return
    try:
        with contextlib.suppress(OSError):  # a disk without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _name_file(package: str) -> str:
    """Return the name that Spark gives to the file of `group:artifact:version`."""
    group, _, rest = package.partition(":")
    return f"{group}_{rest.replace(':', '-')}.jar"
