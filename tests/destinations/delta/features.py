"""A feature that no program knows."""

from __future__ import annotations

import json
from pathlib import Path


def demand_feature(table: Path, *, of_readers: bool = False) -> None:
    """Make a Delta table demand an invented feature, of writers alone or of readers too."""
    protocol = {"minReaderVersion": 3 if of_readers else 1, "minWriterVersion": 7, "writerFeatures": ["invented"]}
    more = {"readerFeatures": ["invented"]} if of_readers else {}
    log = table / "_delta_log"
    version = len([*log.glob("*.json")])
    (log / f"{version:020}.json").write_text(json.dumps({"protocol": {**protocol, **more}}) + "\n")
