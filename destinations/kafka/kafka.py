"""The destination that sends rows as messages to Kafka topics.

It sends them at least once, or, with a batch and its label in one transaction, once.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, count
from typing import Any, ClassVar, Literal

from destinations.capabilities import HasDemands, ReadBack, ReadsBack, StopsWriters
from destinations.destination import (
    LANE,
    Destination,
    DestinationError,
    Identity,
    Misfit,
    OpenDestination,
    Unsure,
    Written,
    make_other_place_error,
    make_unsure_error,
)
from destinations.kafka.messages import CSV_OPTIONS, JSON_OPTIONS, MessageColumns, TopicLimits
from destinations.kafka.producer import OWN, OutgoingMessage, ProducerFenced, Sender
from destinations.labels import Label
from origins.batch_rows import BatchRows, TableRows
from origins.capabilities import Examinable, Need
from origins.codec import LEFT_OUT, decode, encode
from origins.crash_points import reach
from origins.errors import OriginError, WherryError, list_spark_errors
from origins.kafka.avro import AvroCoding
from origins.kafka.client import Cluster, Partition, describe_missing_rights
from origins.kafka.formats import CODED, FORMATS, Coding
from origins.kafka.rows import KafkaRows
from origins.kafka.schema_registry import SchemaRegistry, check_coding, explain_coding, read_schema_file
from origins.lazy import DataFrame, F, Row, SparkSession, T
from origins.names import quote_text
from origins.schema import make_empty_frame
from stages.stage import Stage

_ONCE = "effectively once for readers of committed messages: a batch and its label are one Kafka transaction"
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_DEFAULT_BYTES = 1_048_588
"""The largest message of a topic that does not set its size, by Kafka's default."""
_IDLE = 8
"""How many producers are kept for the next batches."""
_MANY = 1 << 40
_WRITER = ("WRITE", "DESCRIBE", "DESCRIBE_CONFIGS")
_ASKER = ("READ", *_WRITER)
"""The rights needed on a topic for rows, and on a topic for labels."""


@dataclass(frozen=True, kw_only=True)
class Kafka(Destination, ReadsBack, Examinable):
    """Sends each row as a message to a Kafka topic. Headers name the batch and the number of the row in it.

    Example:
        kafka:
          servers: broker:9092
          topic: orders
          key: id
          exactly_once: true
    """

    guarantee: ClassVar[str] = "at least once: after a crash Wherry sends the open batch again, with the same headers"

    servers: str = field(metadata={"like": "broker-1:9092,broker-2:9092"})
    """The brokers to ask first, with their ports, separated by commas."""
    topic: str | None = field(default=None, metadata={"like": "orders"})
    """The topic, which must exist. Give either `topic` or `topic_column`."""
    topic_column: str | None = field(default=None, metadata={"like": "topic"})
    """The column that names the topic of each row."""
    format: Literal["json", "csv", "avro", "protobuf", "text", "raw"] = "json"
    """What a message's value is: all columns as `json` (one object), `csv` (one line), `avro` or `protobuf`; or one
    column as `text` or `raw` (bytes)."""
    key: str | None = field(default=None, metadata={"like": "id"})
    """The column that is the message's key. Messages with the same key stay in order."""
    value: str | None = field(default=None, metadata={"like": "payload"})
    """The column that is the message's value. The default is all columns, and for `text` and `raw` the one named
    `value`."""
    format_options: Mapping[str, str | int | float | bool] = field(default_factory=dict, metadata={"like": "{sep: ;}"})
    """Options of Spark's writer for `csv`, for example `sep`, `quote` and `dateFormat`."""
    schema_file: str | None = field(default=None, metadata={"path": True, "like": "orders.avsc"})
    """The file that says what a value is: an Avro schema, or Protobuf's descriptors with all imports."""
    message: str | None = field(default=None, metadata={"like": "shop.Order"})
    """The name of the message in Protobuf, with its package."""
    registry: Mapping[str, str] = field(
        default_factory=dict, repr=False, metadata={"secret": True, "like": "{url: 'https://registry:8081'}"}
    )
    """The schema registry, for `avro` with Confluent's header: `url`, and `username`, `password`, `token` or `ca`."""
    subject: str | None = field(default=None, metadata={"like": "orders-value"})
    """The subject of the registry whose newest schema is used. The default is the topic's name and `-value`."""
    headers: Sequence[str] = field(default=(), metadata={"like": "[source, headers]"})
    """Columns that become headers. A map, or an array of structs of key and value, gives a header for each entry."""
    partition: str | None = field(default=None, metadata={"like": "shard"})
    """The column that is the number of the partition. By default Kafka's client chooses one by the key."""
    exactly_once: bool = False
    """Whether a batch and its label are one Kafka transaction, so that readers of committed messages see it once."""
    label_topic: str = "wherry-labels"
    """The compacted topic for the labels of batches, with `exactly_once`. Wherry makes it if it is missing."""
    transactional_id: str = "wherry"
    """How the transactional ids of its producers begin, with `exactly_once`."""
    error_headers: Literal["wherry", "connect"] = "wherry"
    """As a DLQ: whether the headers with the cause have Wherry's names, or those of Kafka Connect."""
    options: Mapping[str, str | int | float | bool] = field(
        default_factory=dict, repr=False, metadata={"secret": True, "like": "{security.protocol: SASL_SSL}"}
    )
    """Settings of Kafka's client (librdkafka), for example `compression.type` and `sasl.password`."""

    shortens: bool = field(default=False, repr=False, metadata={"hidden": True})
    """Whether a refused row that is too large for the topic comes without its values."""

    def __post_init__(self) -> None:
        if not self.servers.strip():
            raise ValueError("servers: expected a broker and its port, such as broker:9092, got nothing")
        if bool(self.topic) == bool(self.topic_column):
            got = "both" if self.topic else "none of them"
            raise ValueError(f"topic: expected either topic or topic_column, got {got}")
        for option in ("topic", "label_topic"):
            name = getattr(self, option)
            plain = name.replace(LANE, "lane") if name and option == "topic" else name
            if plain is not None and not _TOPIC.fullmatch(plain):
                raise ValueError(f"{option}: expected a name of letters, digits, dots, _ and -, got {name!r}")
        if self.label_topic.startswith("__"):
            raise ValueError(f"label_topic: expected a name that does not begin with __, got {self.label_topic!r}")
        _check_format(self)
        if self.error_headers not in ("wherry", "connect"):
            raise ValueError(f"error_headers: expected wherry or connect, got {self.error_headers!r}")
        if isinstance(self.headers, str):
            raise ValueError(f"headers: expected a list, got {self.headers!r}")
        if str(self.options.get("message.timeout.ms")) == "0":
            raise ValueError("options: expected a message.timeout.ms above 0, after which a message is given up")
        for name in OWN:
            if name in self.options:
                raise ValueError(f"options: expected settings other than {name}, which Wherry sets itself")
        if self.exactly_once:
            object.__setattr__(self, "guarantee", _ONCE)

    @property
    def remembers(self) -> bool:  # type: ignore[override]  # it depends on an option
        """Whether it remembers batches, which needs `exactly_once`."""
        return self.exactly_once

    @property
    def place(self) -> str:
        return f"kafka://{self.servers}/{self.topic or self.topic_column}"

    @property
    def cluster(self) -> Cluster:
        """The brokers that the client connects to."""
        return Cluster.of(self.servers, self.options)

    @property
    def read_back(self) -> ReadBack | None:
        """None unless the value of a message is a JSON object with all columns."""
        is_whole = self.format == "json" and not (self.value or self.headers or self.partition)
        return self._read_rows if is_whole and self.topic else None

    def _read_rows(self, spark: SparkSession, labels: Sequence[Label], schema: T.StructType) -> DataFrame:
        def find_ranges() -> Mapping[Partition, tuple[int, int]]:
            ends = self.cluster.list_ends(self.cluster.find_topics([str(self.topic)], None))
            return {each: (known.first, known.end) for each, known in ends.items()}

        rows = KafkaRows(
            format="raw",
            load=lambda: AvroCoding(schemas={}, header=True),
            cluster=self.cluster,
            columns=schema.json(),
            check=find_ranges,
            spark=spark,
            places=False,
        )
        with _explain():
            messages = rows.load_messages()
        keys = ", ".join(quote_text(label.key) for label in labels)
        mine = f"exists(headers, h -> h.key = 'wherry.batch' and cast(h.value as string) in ({keys}))"
        parsed = F.from_json(F.col("value").cast("string"), schema, {**JSON_OPTIONS, "mode": "FAILFAST"})
        return messages.where(mine).select(parsed.alias("row")).select("row.*")

    def as_copy(self) -> Kafka:
        return replace(self, shortens=True)

    def open(self) -> OpenKafka:
        return OpenKafka(destination=self)

    def try_out(self) -> None:
        """Raise what prevents access to the brokers, the topic or the transactions. It sends nothing."""
        with _explain():
            _, labels = self.find_ids()
            self.cluster.read_settings([*([self.topic] if self.topic else []), *([self.label_topic] if labels else [])])
            self.load_coding()
        if self.exactly_once:
            try:
                Sender(self.cluster, f"{self.transactional_id}.doctor")
            except ProducerFenced as error:
                raise DestinationError(str(error), hint="Run `wherry doctor FILE` again, one at a time.") from error

    def examine(self, jars: Sequence[str]) -> Iterator[Need]:
        try:
            missing = self.find_missing_rights()
            if not missing:
                self.try_out()
        except (WherryError, OSError) as error:
            yield Need(state="problem", found=getattr(error, "message", str(error)), advice=getattr(error, "hint", ""))
            return
        once = f"; transactions as {self.transactional_id}" if self.exactly_once else ""
        if missing:
            yield describe_missing_rights(missing)
        else:
            yield Need(state="ok", found=f"writes to {self.place}{once}")

    def find_missing_rights(self) -> Sequence[str]:
        """Return the rights on the topic and on the topic of the labels that the user lacks."""
        with _explain():
            _, labels = self.find_ids()
            topics = [
                *([(self.topic, _WRITER)] if self.topic else []),
                *([(self.label_topic, _ASKER)] if labels else []),
            ]
            return [
                each for topic, rights in topics for each in self.cluster.find_missing_rights([topic], None, rights)
            ]

    def load_coding(self) -> Coding | None:
        """Return the coding for values in Avro and Protobuf, with the newest schema. Raises `OriginError`."""
        if self.format not in CODED:
            return None
        if self.registry:
            registry, subject = SchemaRegistry.of(self.registry), self.subject or f"{self.topic}-value"
            newest = registry.find_newest(subject)
            if newest is None:
                raise OriginError(
                    f"The schema registry at {registry.url} has no subject {subject}, and values need its schema.",
                    hint="Register the schema, or name its subject with `subject`.",
                )
            coding: Coding = AvroCoding(schemas=dict([newest]), header=True)
        else:
            coding = read_schema_file(self)
        with explain_coding(self, f"Correct what {'registry' if self.registry else 'schema_file'} names."):
            coding.list_columns()
        return coding

    def is_still(self, spark: SparkSession, known: Identity, newest: str) -> bool:
        """Whether the topics have the same ids. No other topic has the id of a topic, in this cluster or elsewhere."""
        topic, labels, _ = f"{known.id}  ".split(" ")[:3]
        with _explain():
            return bool(topic or labels) and (topic, labels) == self.find_ids()

    def find_ids(self) -> tuple[str, str]:
        """Return the ids of the topic and of the topic for labels. Each is empty if there is no such topic."""
        cluster, topic, labels = self.cluster, "", ""
        if self.topic is not None:
            topic = cluster.find_topics([self.topic], None)[self.topic][0]
        if self.exactly_once:
            found = cluster.find_topics([], re.escape(self.label_topic))
            labels = found[self.label_topic][0] if found else ""
        return topic, labels


@dataclass(eq=False)
class OpenKafka(OpenDestination, HasDemands, StopsWriters):
    """The topics of a Kafka destination that a run has open."""

    destination: Kafka
    _known: str = ""
    """The ids of the topics when an earlier run opened them."""
    _fence: str = ""
    _idle: list[Sender] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def expects(self, known: Identity) -> None:
        self._known = known.id

    def ensure_place(self, spark: SparkSession, schema: T.StructType | None) -> Identity:
        destination = self.destination
        known = dict(zip(("topic", "labels", "producers"), self._known.split(" "), strict=False))
        with _explain():
            topic, labels = destination.find_ids()
            if destination.exactly_once and not labels and not known.get("labels"):
                destination.cluster.make_topic(destination.label_topic, _COMPACTED)
                topic, labels = destination.find_ids()
            if destination.exactly_once and labels and schema is not None:
                self._check_label_topic()
        for before, now in ((known.get("topic"), topic), (known.get("labels"), labels)):
            if before and before != now and (now or destination.exactly_once):
                raise make_other_place_error(destination.place, gone=not now)
        if schema is not None:
            self._check(spark, schema)
        producers = destination.transactional_id if destination.exactly_once else ""
        return Identity(place=destination.place, id=f"{topic} {labels} {producers}".rstrip())

    def demands(self, spark: SparkSession, schema: T.StructType) -> Sequence[Stage]:
        with _explain():
            limits = self._limits
        columns = MessageColumns(self.destination, schema, self._coding)
        return list(columns.make_demands(self.destination.topic, limits))

    def write(self, spark: SparkSession, rows: BatchRows, labels: Sequence[Label]) -> Written:
        destination, first, fence = self.destination, labels[0], self._fence
        if first.deadline is not None:
            first.deadline.secure()

        def check() -> None:
            if self._fence != fence:
                raise ProducerFenced(f"A write to {destination.place} that began before a fence does not land.")
            if first.deadline is not None:
                first.deadline.check()

        def close(sent: Written) -> Sequence[OutgoingMessage]:
            reach("in-write", first.destination)
            return [self._make_label_message(label, labels, sent) for label in labels] if destination.remembers else []

        with _explain(away=True), self._borrow_sender(first) as sender:  # before reading, so a question fences it
            table = rows.table()
            frame = rows.frame() if table is None else TableRows(spark, table, rows.schema).frame()
            most = min((limit.bytes for limit in self._limits.values()), default=0) if destination.shortens else None
            selected = MessageColumns(destination, rows.schema, self._coding).select(frame, shorten_to=most)
            found = selected.toLocalIterator(prefetchPartitions=True)
            begin = next(found, None)
            if begin is None:
                return Written(rows=0)
            sent = sender.send(self._make_messages(chain([begin], found), first), check=check, close=close)
        return sent if len(labels) == 1 else Written(rows=sent.rows)

    def find(self, spark: SparkSession, label: Label, identity: Identity) -> Written | None:
        """Find the batch. This opens the lane's producer, so no other producer can then commit a batch of that lane."""
        destination = self.destination
        if not destination.exactly_once:
            return None
        with _explain(away=True):
            _, labels = destination.find_ids()
            _, known, producers = f"{identity.id}  ".split(" ")[:3]
            if labels != known:
                raise self._make_unsure(label, f"the topic {destination.label_topic} is missing or was replaced")
            if producers not in ("", destination.transactional_id):
                raise self._make_unsure(label, f"it was sent under another `transactional_id`, {producers}")
            with self._borrow_sender(label, anew=True):
                reach("after-claim", label.destination)
            notes = self._read_labels(self._name_producer(label))
        for note in notes:
            if note.key == label.key:
                return Written(rows=note.rows, bytes=note.bytes)
        if notes and notes[-1].number > label.batch.number:
            raise self._make_unsure(
                label, f"{destination.label_topic} has a later batch of its lane, and keeps only that"
            )
        return None

    def fence(self, spark: SparkSession, token: str) -> None:
        """End the writes that this process began.

        Writes of another process are fenced lane by lane, when Wherry asks for the lane's batch.
        """
        self._fence = token

    def close(self) -> None:
        with self._lock:
            self._idle.clear()

    @cached_property
    def _coding(self) -> Coding | None:
        """The coding for values in Avro and Protobuf, with the schema that is the newest when the run begins."""
        return self.destination.load_coding()

    @cached_property
    def _limits(self) -> Mapping[str, TopicLimits]:
        """The limits of each topic to which a row may go."""
        destination, cluster = self.destination, self.destination.cluster
        names, pattern = ([destination.topic], None) if destination.topic else ([], ".*")
        topics = cluster.find_topics(names, pattern)
        settings = cluster.read_settings(list(topics))
        client = int(destination.options.get("message.max.bytes", 1 << 30))
        return {
            name: TopicLimits(
                partitions=len(partitions),
                bytes=min(client, int(settings[name].get("max.message.bytes", _DEFAULT_BYTES))),
            )
            for name, (_, partitions) in topics.items()
        }

    def _check(self, spark: SparkSession, schema: T.StructType) -> None:
        with _explain():
            columns = MessageColumns(self.destination, schema, self._coding)
        problems = columns.list_problems()
        if not problems:
            try:
                _ = columns.select(make_empty_frame(spark, schema)).schema
            except list_spark_errors() as error:
                problems = [str(error).splitlines()[0]]
        if problems:
            raise Misfit("\n  ".join([f"The rows do not fit {self.destination.place}:", *problems]))

    def _check_label_topic(self) -> None:
        name = self.destination.label_topic
        policy = self.destination.cluster.read_settings([name])[name].get("cleanup.policy", "")
        if policy != "compact":
            raise DestinationError(
                f"The topic {name} has cleanup.policy {policy}, so that labels of batches would be lost.",
                hint="Set its cleanup.policy to compact; or name another topic in `label_topic`, which Wherry makes.",
            )

    def _make_messages(self, rows: Iterable[Row], label: Label) -> Iterator[OutgoingMessage]:
        batch, topic = label.batch, self.destination.topic
        place = f"{batch.lane}/{batch.number}"
        same: list[tuple[str, str | bytes | None]] = [("wherry.batch", label.key), ("wherry.lane", place)]
        for number, (key, value, named, partition, headers, why) in zip(count(1), rows, strict=False):
            to = topic or named
            if why is not None:
                raise DestinationError(
                    f"Row {number} of batch {batch.number} of lane {batch.lane} has no value: {why}.",
                    hint="The schema changed after the batch was decided: bring the old one back, then run again. "
                    "Refused rows need a schema that takes all values of the DLQ's columns.",
                )
            if to is None:
                raise DestinationError(
                    f"Row {number} of batch {batch.number} of lane {batch.lane} has NULL in "
                    f"{self.destination.topic_column}, and no topic has this name.",
                    hint="Refuse such rows with the stage require, or fill the column.",
                )
            yield OutgoingMessage(
                topic=to,
                key=None if key is None else bytes(key),
                value=None if value is None else bytes(value),
                partition=partition,
                headers=[
                    *same,
                    ("wherry.row", str(number).encode()),
                    *((name, None if content is None else bytes(content)) for name, content in headers),
                ],
            )

    def _make_label_message(self, label: Label, labels: Sequence[Label], sent: Written) -> OutgoingMessage:
        batch, alone = label.batch, len(labels) == 1
        note = LabelNote(
            key=label.key,
            pipeline=batch.pipeline,
            lane=batch.lane,
            number=batch.number,
            time=batch.time.isoformat(),
            rows=sent.rows if alone else None,
            bytes=sent.bytes if alone else None,
            reads=batch.reads,
            job=batch.job,
        )
        name = self._name_producer(label)
        return OutgoingMessage(
            topic=self.destination.label_topic, key=name.encode(), value=json.dumps(encode(note)).encode()
        )

    def _name_producer(self, label: Label) -> str:
        """Return the transactional id of a lane. Its batches are written one after the other."""
        parts = [self.destination.transactional_id, label.batch.pipeline, label.destination, label.batch.lane]
        return ".".join(parts)

    @contextlib.contextmanager
    def _borrow_sender(self, label: Label, *, anew: bool = False) -> Iterator[Sender]:
        """Borrow the lane's producer. It is kept for the next batch, unless an error occurs."""
        name = self._name_producer(label) if self.destination.exactly_once else ""
        with self._lock:
            mine = [each for each in self._idle if each.transactional_id == name]
            taken = mine[-1:] if not name or not anew else mine
            for each in taken:
                self._idle.remove(each)
        largest = [limit.bytes for limit in self._limits.values()]
        sender = taken[0] if taken and not anew else Sender(self.destination.cluster, name, largest)
        yield sender
        with self._lock:
            self._idle = [*self._idle, sender][-_IDLE:]

    def _read_labels(self, name: str) -> Sequence[LabelNote]:
        """Return the labels with this transactional id that the topic still has, with the newest last."""
        destination, cluster = self.destination, self.destination.cluster
        topics = cluster.find_topics([destination.label_topic], None)
        written = cluster.list_ends(topics, committed=False)
        until = time.monotonic() + cluster.seconds
        while any(known.end < written[each].end for each, known in cluster.list_ends(topics).items()):
            if time.monotonic() > until:
                raise ConnectionError(f"A transaction of another lane is open in {destination.label_topic}.")
            time.sleep(0.05)  # it ends when that lane's batch is committed or asked for, or when Kafka gives up
        messages = cluster.read({each: (known.first, known.end) for each, known in written.items()}, _MANY) or []
        mine = [message.value() for message in messages if message.key() == name.encode()]
        return [decode(LabelNote, json.loads(value)) for value in mine if value is not None]

    def _make_unsure(self, label: Label, why: str) -> Unsure:
        return make_unsure_error(label, why, f"Look for messages with the header wherry.batch = {label.key}.")


def _check_format(options: Kafka) -> None:
    """Raise ValueError unless the format is known, and has only the options that it may have."""
    if options.format not in FORMATS:
        raise ValueError(f"format: expected {', '.join(FORMATS)}, got {options.format!r}")
    check_coding(options)
    if options.subject and not options.registry:
        raise ValueError(f"subject: expected beside a registry, got {options.subject!r} without one")
    if options.registry and not (options.subject or options.topic):
        raise ValueError("subject: expected a name, since rows go to several topics, got none")
    if options.value and options.format == "csv":
        raise ValueError(f"value: expected without format: csv, which has a field for each column, got {options.value}")
    if options.format_options and options.format != "csv":
        raise ValueError(f"format_options: expected with format: csv only, got {options.format}")
    for name in options.format_options:
        if name.lower() not in CSV_OPTIONS:
            raise ValueError(f"format_options: expected {', '.join(CSV_OPTIONS.values())}, got {name}")


@dataclass(frozen=True, kw_only=True)
class LabelNote:
    """The record of a batch in the label topic, which keeps the newest record of each lane."""

    key: str
    pipeline: str
    lane: str
    number: int
    time: str
    rows: int | None
    bytes: int | None
    reads: str = field(default="", metadata=LEFT_OUT)
    job: Mapping[str, str] = field(default_factory=dict, metadata=LEFT_OUT)


_COMPACTED: Mapping[str, Any] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.ms": "3600000",
    "segment.bytes": str(16 << 20),
}


@contextlib.contextmanager
def _explain(*, away: bool = False) -> Iterator[None]:
    """Raise the client's errors about topics and offsets as errors of the destination.

    With `away`, brokers that do not answer raise `ConnectionError`, so that the batch is tried again.
    """
    try:
        yield
    except OriginError as error:
        cause = error.__cause__
        if away and isinstance(cause, ConnectionError):
            raise ConnectionError(error.message) from cause
        raise DestinationError(error.message, hint=error.hint) from cause
