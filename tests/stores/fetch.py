"""Fetch what the tests of object stores need besides Python: `python -m tests.stores.fetch`.

The tests fetch it themselves too, once. But tests that run in parallel then wait for each other.
"""

from __future__ import annotations

import sys
import time

from tests.stores import azure, hdfs, jars


def main() -> None:
    """Fetch what is missing, and print how long it took."""
    start = time.monotonic()
    jars.fetch()
    hdfs.fetch()
    why = azure.say_why_not()
    if why is None:
        azure.install()
    sys.stdout.write(f"{why or 'Azurite is there'}. That and the JARs took {time.monotonic() - start:.0f} s.\n")


if __name__ == "__main__":
    main()
