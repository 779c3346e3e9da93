"""Reads a topic with a password, by Spark's source and by the client: `python -m tests.kafka.both_ways SERVERS TOPIC`.

It prints the rows of each as JSON. It is a process of its own, since its Spark has JARs that other tests lack.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone

from origins import kafka
from origins.batch import Batch, Limits
from origins.kafka import METADATA, Kafka
from origins.origin import PLACE, Progress
from runners.spark.start import start
from tests.kafka.broker import PASSWORD, make_options
from tests.kafka.jars import list_spark_jars


def main(servers: str, topic: str) -> None:
    """Print the rows of both."""
    spark = start({"spark.jars": ",".join(list_spark_jars())})
    facts, options = tuple(METADATA), make_options(PASSWORD)
    origin = Kafka(servers=servers, topic=topic, format="json", schema="id int", metadata=facts, options=options)
    backlog = origin.survey(spark, Progress())
    span, schema = backlog.take("0", None, Limits()), origin.columns(spark, backlog)
    assert span is not None
    assert schema is not None
    batch = Batch(
        pipeline="orders", run="run", origin="kafka", lane="0", number=1, plan="0-1", span=span,
        schema=origin.complete_schema(schema), time=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )  # fmt: skip
    found = []
    for most in (kafka.FEW, 0):
        kafka.FEW = most
        frame = origin.fetch(spark, [batch], places=True).frame()
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        rows.sort(key=lambda row: (row[PLACE]["part"], row[PLACE]["row"]))
        found.append({"columns": frame.schema.simpleString(), "rows": [repr(row) for row in rows]})
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
