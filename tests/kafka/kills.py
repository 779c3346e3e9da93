"""Kill processes at random while they process a topic's messages: none is lost, and none is delivered twice.

    python -m tests.kafka.kills --into FOLDER --to delta           40,000 messages in 400 batches, 50 kills
    python -m tests.kafka.kills --into FOLDER --to kafka           the same into another topic, exactly once
    python -m tests.kafka.kills --into FOLDER --to kafka --most 5  only five more of these kills

It continues after an earlier call, and writes `delta.md` or `kafka.md`. In the end it counts the delivered rows by key,
and checks the order of each key.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.kafka.broker import Broker, KafkaAddress
from tests.kafka.test_kafka_destination import read_messages
from tests.scenarios.soak import Load, make_parser, run_trial

DEFINITION = """
name: orders
origin:
  kafka:
    servers: "{servers}"
    topic: orders
    format: json
    schema: "id long, customer string, amount string"
    metadata: [kafka_partition, kafka_offset]
  lanes: 2
stages:
  - cast: {{amount: int}}
destinations:
  - {destination}
dlq: {{window: 0}}
run: {{batch: {{rows: {rows}}}}}
"""
DESTINATIONS = {
    "delta": "delta: {{path: tables/orders}}",
    "kafka": 'kafka: {{servers: "{servers}", topic: carried, key: customer, exactly_once: true}}',
}
PARTITIONS, KEYS = 8, 20


@dataclass(frozen=True)
class MessageLoad(Load):
    """The folder of a load whose rows are messages."""

    servers: str
    to: str

    def prepare(self) -> None:
        """Make the topics and send the messages, unless that is done already."""
        if (self.folder / "ready").exists():
            return
        brokers = KafkaAddress(self.servers)
        for name in ("orders", "carried"):
            brokers.make_topic(PARTITIONS, name=name)
        each = self.rows // self.batches
        for key in range(KEYS):
            rows = [row for row in range(self.rows) if row % KEYS == key]
            values = [
                {"id": row, "customer": f"c{key}", "amount": "x" if self._refuses(*divmod(row, each)) else "1"}
                for row in rows
            ]
            brokers.send("orders", [json.dumps(value) for value in values], key=f"c{key}")
        text = DEFINITION.format(
            servers=self.servers,
            rows=each,
            destination=DESTINATIONS[self.to].format(servers=self.servers),
        )
        (self.folder / "pipeline.yaml").write_text(text, encoding="utf-8")
        (self.folder / "ready").touch()

    def count_delivered(self) -> Mapping[str, Any]:
        """Count the rows and the distinct ids, and list the keys that are out of order."""
        ids: Counter[int] = Counter()
        last: dict[str, int] = {}
        disordered = set()
        for row in self._read_topic() if self.to == "kafka" else self._read_table():
            ids[row["id"]] += 1
            if row["id"] <= last.get(row["customer"], -1):
                disordered.add(row["customer"])
            last[row["customer"]] = row["id"]
        return {"rows": ids.total(), "ids": len(ids), "keys": len(last), "out of order": sorted(disordered)}

    @property
    def expected(self) -> Mapping[str, Any]:
        """The counts that are expected in the end."""
        return {**super().expected, "keys": KEYS, "out of order": []}

    def _read_topic(self) -> Iterable[Mapping[str, Any]]:
        """Return the committed messages, each partition in order."""
        messages = read_messages(KafkaAddress(self.servers), "carried")
        return [json.loads(message.value() or b"") for message in messages]

    def _read_table(self) -> Iterable[Mapping[str, Any]]:
        """Yield the rows in the order of the table's versions, and of the rows in each version."""
        import pyarrow.parquet as pq
        from deltalake import DeltaTable

        place = self.folder / "tables" / "orders"
        for version in range(DeltaTable(str(place)).version() + 1):
            log = (place / "_delta_log" / f"{version:020}.json").read_text(encoding="utf-8")
            for added in (entry["add"]["path"] for entry in map(json.loads, log.splitlines()) if "add" in entry):
                yield from pq.read_table(place / added, partitioning=None).to_pylist()


def main() -> int:
    """Kill as often as requested, and then check the result."""
    parser = make_parser(__doc__, kills=50)
    parser.add_argument("--to", choices=[*DESTINATIONS], required=True)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--batches", type=int, default=400)
    asked = parser.parse_args()
    asked.into = (asked.into / asked.to).absolute()
    broker = Broker(asked.into / "broker").wait()
    try:
        load = MessageLoad(asked.into, asked.rows, asked.batches, broker.servers, asked.to)
        return run_trial(load, asked, asked.to)
    finally:
        broker.kill()


if __name__ == "__main__":
    sys.exit(main())
