"""Kafka's offsets and spans in the ledger, and the partitions and rows that a batch takes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from origins.batch import Json
from origins.codec import decode
from origins.kafka.client import Partition


def parse_position(option: str, position: str) -> float | None:
    """Return the moment of a position, in seconds since 1970; None for `earliest` and `latest`. Raise ValueError."""
    if position in ("earliest", "latest"):
        return None
    try:
        moment = datetime.fromisoformat(position.replace("Z", "+00:00"))
    except ValueError as error:
        raise ValueError(
            f"{option}: expected earliest, latest or a time such as 2026-01-31T06:00:00Z, got {position!r}"
        ) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def read_positions(offset: Json) -> Mapping[Partition, tuple[str, int]]:
    """Return the topic's id and the next offset of each partition in an offset."""
    if offset is None or isinstance(offset, str):
        return {}
    if not isinstance(offset, Mapping):
        raise ValueError(f"expected a mapping of topics, got {json.dumps(offset)}")
    found = {}
    for topic, known in offset.items():
        positions = decode(_Positions, known)
        for number, at in positions.next.items():
            found[Partition(topic, int(number))] = (positions.id, at)
    return found


@dataclass(frozen=True, kw_only=True)
class _Positions:
    """The part of an offset about one topic."""

    next: Mapping[str, int]
    id: str = ""


def read_ranges(parts: Sequence[Json]) -> Mapping[Partition, tuple[int, int]]:
    """Return the first offset and the end, exclusive, of each partition of a span."""
    return {Partition(topic, number): (first, end) for topic, number, first, end, _ in _list_ranges(parts)}


def read_topic_ids(parts: Sequence[Json]) -> Mapping[str, str]:
    """Return the ids of a span's topics."""
    return {topic: known for topic, _, _, _, known in _list_ranges(parts)}


def _list_ranges(parts: Sequence[Json]) -> Sequence[tuple[str, int, int, int, str]]:
    return [decode(tuple[str, int, int, int, str], part) for part in parts if not isinstance(part, Mapping)]


def read_schemas(parts: Sequence[Json]) -> Mapping[int, str]:
    """Return the schemas that existed when a span was planned, as digests by id."""
    pinned = [decode(_Schemas, part).schemas for part in parts if isinstance(part, Mapping)]
    return {int(number): digest for each in pinned for number, digest in each.items()}


@dataclass(frozen=True)
class _Schemas:
    schemas: Mapping[str, str]


def describe_positions(positions: Mapping[Partition, Any]) -> str:
    """Return the offsets of a few partitions as text for a person."""
    texts = []
    for each, at in sorted(positions.items())[:3]:
        first, end = at if isinstance(at, tuple) else (at, at + 1)
        texts.append(f"{each} offset {first}" if end - first == 1 else f"{each} offsets {first} to {end - 1}")
    others = len(positions) - 3
    return ", ".join(texts) + (f" and {others} more partition{'s' * (others != 1)}" if others > 0 else "")


def find_lane(partition: Partition, lanes: int) -> int:
    """Return the lane of a partition. It does not depend on other partitions."""
    return (zlib.crc32(partition.topic.encode()) + partition.number) % lanes


def spread_rows(waiting: Mapping[Partition, int], most: int | None) -> Mapping[Partition, int]:
    """Return how many rows a batch takes from each partition, in proportion to the waiting rows, and at most `most`."""
    total = sum(waiting.values())
    if most is None or total <= most:
        return dict(waiting)
    shares = {each: rows * most // total for each, rows in waiting.items()}
    rest = most - sum(shares.values())
    by_remainder = sorted(waiting, key=lambda each: (-(waiting[each] * most % total), each))
    for each in by_remainder[:rest]:
        shares[each] += 1
    return {each: share for each, share in shares.items() if share}
