"""Read topics with Spark's source and with the client: `python -m tests.kafka.both_ways OPTIONS`.

`OPTIONS` is a JSON list of options of origins. For each it prints a line of JSON with the rows of each way. It is a
separate process, since its Spark has JARs that other tests lack.
"""

from __future__ import annotations

import hashlib
import json
import sys
from datetime import datetime, timezone

from origins.batch import Batch, Limits
from origins.kafka import rows as kafka_rows
from origins.kafka.kafka import Kafka
from origins.kafka.rows import METADATA
from origins.nack import REFUSED
from origins.origin import PLACE, Progress
from origins.spark_versions import find_kafka_package
from runners.spark.start import start


def main(asked: str) -> None:
    """Print a line with the rows of both ways for each of these options."""
    spark = start({}, [find_kafka_package()])
    for given in json.loads(asked):
        origin = Kafka(metadata=tuple(METADATA), **given)
        backlog = origin.survey(spark, Progress())
        span, schema = backlog.take("0", None, Limits()), origin.columns(spark, backlog)
        assert span is not None
        assert schema is not None
        batch = Batch(
            pipeline="orders", run="run", origin="kafka", lane="0", number=1, plan="0-1", span=span,
            schema=origin.complete_schema(schema), time=datetime(2026, 1, 1, tzinfo=timezone.utc),
        )  # fmt: skip
        found = []
        for most in (10_000, 0):
            kafka_rows.FEW, kafka_rows.SMALL = most, 64 << 20
            frame = origin.fetch(spark, [batch], places=True).frame()
            rows = [row.asDict(recursive=True) for row in frame.collect()]
            rows.sort(key=lambda row: (row[PLACE]["part"], row[PLACE]["row"]))
            refused = sum(row[REFUSED] is not None for row in rows)
            columns = frame.schema.simpleString()
            found.append({"columns": columns, "rows": [show(row) for row in rows], "refused": refused})
        sys.stdout.write(json.dumps(found) + "\n")


def show(row: object) -> str:
    """Return the text of a row, or a digest of the text if it is long."""
    text = repr(row)
    return text if len(text) < 100_000 else hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    main(*sys.argv[1:])
