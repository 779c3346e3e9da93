"""Every line of any files in a folder is delivered, filtered or refused exactly once."""

from __future__ import annotations

import base64
import json
import os
import random
from collections import Counter

import pytest

from tests.origins.test_odd_files import HEAD, draw_file, split_lines
from tests.scenarios.conftest import Place

pytestmark = pytest.mark.spark
ANYTHING = """
name: orders
origin:
  files: {path: "landing/*", format: KIND, schema: "id int, note string", metadata: [file_name]}
stages:
  - filter: "id is not null"
destinations:
  - delta: {path: tables/orders}
dlq: {window: 0}
run: {batch: {files: 8}}
"""


def get_raw(original: str) -> str:
    """Return the raw content of a refused line. Content that is not text, or begins with NUL, is stored as NUL and its
    bytes in base64."""
    raw: str = json.loads(original)["raw"]
    return base64.b64decode(raw[1:]).decode("utf-8", "replace") if raw.startswith("\0") else raw


@pytest.mark.promise("CD-16", "DQ-01")
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_every_line_of_any_file_is_delivered_filtered_or_refused(place: Place, kind: str) -> None:
    """Two runs read the folder, and files arrive between them. The DLQ has the file and the raw content of each refused
    line."""
    chance = random.Random(kind)
    landing = place.folder / "landing"
    landing.mkdir()
    lines: Counter[tuple[str, str]] = Counter()
    read = filtered = 0
    for run in range(2):
        for number in range(16):
            name, content = f"{run}-{number:02}", HEAD * (kind == "csv") + draw_file(chance)
            (landing / name).write_bytes(content)
            os.utime(landing / name, (chance.randint(1, 99), chance.randint(1, 99)))
            lines.update((name, line) for line in split_lines(kind, content))
        report = place.load(ANYTHING.replace("KIND", kind)).run()
        assert report.balanced is True
        read, filtered = read + report.read, filtered + report.filtered
    refused = Counter((row["message"].partition(": ")[0], get_raw(row["original"])) for row in place.refused())
    delivered = Counter(row["file_name"] for row in place.rows("tables/orders"))
    assert read == lines.total() == delivered.total() + filtered + refused.total()
    assert refused <= lines
    assert refused.total() > 20
    assert delivered <= Counter(name for name, _ in (lines - refused).elements())
