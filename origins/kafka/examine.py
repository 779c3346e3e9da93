"""Whether brokers and a schema registry give an origin what it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from origins.errors import WherryError
from origins.examination import Need
from origins.kafka.client import Cluster
from origins.kafka.schema_registry import SchemaRegistry
from origins.spark_versions import find_kafka_package

GIVE_RIGHTS = "Give the user these rights with kafka-acls.sh."


def examine_reading(
    cluster: Cluster,
    names: Sequence[str],
    pattern: str | None,
    group: str | None,
    registry: SchemaRegistry | None,
    find_subjects: Callable[[str], Sequence[str]],
) -> Iterator[Need]:
    """Yield whether the topics can be read, and whether the registry has their schemas."""
    try:
        topics = cluster.find_topics(names, pattern)
        cluster.list_ends(topics)
        missing = cluster.find_missing_rights(list(topics), group)
        subjects = [each for topic in topics for each in find_subjects(topic)]
        unknown = [each for each in subjects if registry and not registry.list_schemas(each)]
    except WherryError as error:
        yield Need(state="problem", found=error.message, advice=error.hint)
        return
    count = sum(len(partitions) for _, partitions in topics.values())
    named = ", ".join(topics) or f"no topic that fits {pattern}"
    yield Need(state="ok", found=f"{named} in Kafka at {cluster.servers}; {count} partition{'s' * (count != 1)}")
    if missing:
        yield Need(state="problem", found=f"the user lacks rights: {', '.join(missing)}", advice=GIVE_RIGHTS)
    if registry is not None:
        at = f"the schema registry at {registry.url}"
        advice = "Name the subjects with `subjects`."
        yield (
            Need(state="problem", found=f"{at} has no subject {', '.join(unknown)}", advice=advice)
            if unknown
            else Need(state="ok", found=f"{at} has the schemas of {', '.join(subjects)}")
        )


def examine_jars(jars: Sequence[str]) -> Iterator[Need]:
    """Yield a need if no JAR lets Spark read large batches of Kafka."""
    package = find_kafka_package()
    if not any(package.split(":")[1] in each for each in jars):
        yield Need(
            state="not needed",
            found="the definition names no JAR for Kafka; small batches need none",
            advice=f"For large batches, write in the definition:  spark: {{packages: [{package!r}]}}",
        )
