"""Requests to Kafka's own client: facts about topics, and messages that this process reads."""

from __future__ import annotations

import functools
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from origins.capabilities import Need
from origins.errors import OriginError
from origins.lazy import LazyModule

if TYPE_CHECKING:
    import confluent_kafka as ck
else:
    ck = LazyModule("confluent_kafka")
ck_admin: Any = LazyModule("confluent_kafka.admin")

PATIENCE = 30.0
"""The seconds that the client waits for an answer of the brokers."""
UNREACHABLE = (
    "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE", "_TIMED_OUT_QUEUE", "REQUEST_TIMED_OUT",
    "_DESTROY_BROKER",  # newer clients report it if a broker was replaced during a request
)  # fmt: skip
"""The errors that pass once the brokers are back."""
Topics: TypeAlias = Mapping[str, tuple[str, Sequence[int]]]
"""The id and the partitions of each topic, by its name."""
_MISSING = "Kafka's client is missing: {}."
_CHECK = "Check `servers` and `options`, and whether the brokers run."


@dataclass(frozen=True, order=True)
class Partition:
    """A partition of a topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.number}"


@dataclass(frozen=True, kw_only=True)
class Ends:
    """The offsets that a partition holds: from `first` up to and excluding `end`."""

    id: str
    """The topic's id. A topic that was deleted and created again has another id."""
    first: int
    end: int
    """For a reader of committed messages, the offset after the last message before any open transaction."""


@dataclass(frozen=True)
class Cluster:
    """The brokers that the client reaches with these settings. The process keeps its connections."""

    settings: tuple[tuple[str, Any], ...] = field(repr=False)
    seconds: float
    """The seconds that an answer may take."""

    @staticmethod
    def of(servers: str, options: Mapping[str, Any], seconds: float | None = None) -> Cluster:
        """Return the cluster of these servers. An answer may take `PATIENCE` by default."""
        settings = tuple(sorted({**options, "bootstrap.servers": servers}.items()))
        return Cluster(settings, PATIENCE if seconds is None else seconds)

    @property
    def servers(self) -> str:
        """Return the addresses of its brokers."""
        return str(dict(self.settings)["bootstrap.servers"])

    def find_topics(self, topics: Sequence[str], pattern: str | None) -> Topics:
        """Return these topics, or those of the pattern. Raise `OriginError` if a named topic is missing."""
        with self._explain("list its topics"):
            admin = _make_admin(self)
            names = list(topics)
            if pattern is not None:
                there = admin.list_topics(timeout=self.seconds).topics
                names = sorted(name for name in there if re.fullmatch(pattern, name) and not name.startswith("__"))
            if not names:
                return {}
            answers = admin.describe_topics(ck.TopicCollection(names), request_timeout=self.seconds)
            found = {name: self._find_topic(name, answer) for name, answer in answers.items()}
        return {
            name: (str(topic.topic_id), sorted(each.id for each in topic.partitions)) for name, topic in found.items()
        }

    def list_ends(self, topics: Topics, *, committed: bool = True) -> Mapping[Partition, Ends]:
        """Return the offsets that each partition of these topics holds now.

        Messages of open transactions are included unless `committed` is true.
        """
        firsts = self.list_offsets(topics, "earliest")
        ends = self.list_offsets(topics, "latest", committed=committed)
        return {
            each: Ends(id=topics[each.topic][0], first=first, end=max(first, ends[each]))
            for each, first in firsts.items()
        }

    def list_offsets(self, topics: Topics, position: str, *of: int, committed: bool = True) -> Mapping[Partition, int]:
        """Return an offset of each partition. `position` is a method of the client's `OffsetSpec`, and `of` its values.

        With `for_timestamp`, it is the first message at or after that time, or less than 0 if there is none.
        """
        with self._explain("list its offsets"):
            spec = getattr(ck_admin.OffsetSpec, position)(*of)
            asked = {
                ck.TopicPartition(name, number): spec for name, (_, numbers) in topics.items() for number in numbers
            }
            if not asked:
                return {}
            level = ck.IsolationLevel.READ_COMMITTED if committed else ck.IsolationLevel.READ_UNCOMMITTED
            answers = _make_admin(self).list_offsets(asked, isolation_level=level, request_timeout=self.seconds)
            return {Partition(at.topic, at.partition): self._wait(answer).offset for at, answer in answers.items()}

    def read(self, ranges: Mapping[Partition, tuple[int, int]], most: int) -> list[ck.Message] | None:
        """Return the messages of these ranges of offsets, in the order of their partitions.

        A range excludes its end. Return None if the values and keys have more bytes than `most`. Messages of aborted
        transactions are left out.
        """
        left = {each: end for each, (first, end) in ranges.items() if first < end}
        found: dict[Partition, list[ck.Message]] = {each: [] for each in ranges}
        size, until = 0, time.monotonic() + self.seconds
        with self._explain("read its messages"), self._borrow_consumer() as consumer:
            consumer.assign([ck.TopicPartition(each.topic, each.number, ranges[each][0]) for each in left])
            while left:
                missing = sum(end - ranges[each][0] - len(found[each]) for each, end in left.items())
                came = consumer.consume(min(missing, 1_000), timeout=0.2)  # it returns when it has so many
                if time.monotonic() > until:
                    raise OriginError(
                        f"Kafka at {self.servers} gave no message for {self.seconds:.0f} s, but {min(left)} has more.",
                        hint="Run again once its brokers answer; nothing of the batch was delivered.",
                    ) from ConnectionError("no answer")
                for message in came:
                    each, offset = Partition(str(message.topic()), message.partition() or 0), message.offset() or 0
                    error = message.error()
                    problem = "" if error is None else error.name()
                    is_there = problem in ("", "_PARTITION_EOF")
                    if problem == "_AUTO_OFFSET_RESET":
                        raise OriginError(
                            f"Messages of {each} were deleted while its batch was read; no row was delivered.",
                            hint="Run again; the next plan says which offsets are gone.",
                        )
                    if not is_there and problem not in UNREACHABLE:
                        raise ck.KafkaException(error)
                    if is_there and each in left:
                        until = time.monotonic() + self.seconds
                    if error is None and each in left and offset < left[each]:
                        found[each].append(message)
                        size += len(message.value() or b"") + len(message.key() or b"")
                    if is_there and each in left and offset + (error is None) >= left[each]:
                        del left[each]
                if size > most:
                    return None
        return [message for each in ranges for message in found[each]]

    def read_times(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, float]:
        """Return when the first message from each of these offsets was made, by its producer's or broker's clock.

        Times are in seconds since 1970. Partitions that do not answer in time are left out.
        """
        found: dict[Partition, float] = {}
        left, until = set(offsets), time.monotonic() + self.seconds
        if not left:
            return found
        with self._explain("read its messages"):
            consumer = _make_consumer(self, **_ONE_BY_ONE)
            try:
                consumer.assign([ck.TopicPartition(each.topic, each.number, at) for each, at in offsets.items()])
                while left and time.monotonic() < until:
                    for message in consumer.consume(100, timeout=0.2):
                        each = Partition(str(message.topic()), message.partition() or 0)
                        kind, moment = message.timestamp()
                        if message.error() is None and each in left and kind != ck.TIMESTAMP_NOT_AVAILABLE:
                            found[each] = moment / 1_000
                        left.discard(each)
                        consumer.pause([ck.TopicPartition(each.topic, each.number)])
            finally:
                consumer.close()
        return found

    def find_missing_rights(
        self, topics: Sequence[str], group: str | None = None, rights: Sequence[str] = ("DESCRIBE", "READ")
    ) -> Sequence[str]:
        """Return the rights on the topics that the user lacks, and READ on the group if the user lacks it."""
        with self._explain("list the rights of this user"):
            admin, asked = _make_admin(self), list[tuple[str, Sequence[str], Any]]()
            if topics:
                about = admin.describe_topics(
                    ck.TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=self.seconds
                )
                asked += [(f"topic {name}", rights, answer) for name, answer in about.items()]
            if group is not None:
                of = admin.describe_consumer_groups(
                    [group], include_authorized_operations=True, request_timeout=self.seconds
                )
                asked += [(f"group {name}", ("READ",), answer) for name, answer in of.items()]
            missing = []
            for what, wanted, answer in asked:
                allowed = self._wait(answer).authorized_operations
                lacking = [each for each in wanted if ck_admin.AclOperation[each] not in (allowed or ())]
                missing += [f"{each} on the {what}" for each in lacking if allowed is not None]
            return missing

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Commit these offsets, exclusive, for a consumer group."""
        positions = [ck.TopicPartition(each.topic, each.number, offset) for each, offset in offsets.items()]
        with self._explain(f"commit the offsets of the group {group}"):
            wanted = ck.ConsumerGroupTopicPartitions(group, positions)
            try:
                for answer in _make_admin(self).alter_consumer_group_offsets([wanted]).values():
                    positions = self._wait(answer).topic_partitions
            except ck.KafkaException as error:
                self._explain_group(group, error.args[0], error)
                raise
            for each in positions:
                if each.error is not None:
                    self._explain_group(group, each.error, ck.KafkaException(each.error))
                    raise ck.KafkaException(each.error)

    def _explain_group(self, group: str, known: Any, error: Exception) -> None:
        """Raise `OriginError` for an error that is about the group."""
        hints = {
            "UNKNOWN_MEMBER_ID": "End the consumers that are members of the group, or name another group.",
            "NON_EMPTY_GROUP": "End the consumers that are members of the group, or name another group.",
            "GROUP_AUTHORIZATION_FAILED": "Give the user the right READ on the group.",
            "TOPIC_AUTHORIZATION_FAILED": "Give the user the right READ on the topic.",
        }
        if known.name() in hints:
            raise OriginError(
                f"Kafka at {self.servers} did not take the offsets of the group {group}: {known.str()}. "
                "The rows are delivered.",
                hint=hints[known.name()],
            ) from error

    def read_settings(self, topics: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the settings of each of these topics, by name."""
        if not topics:
            return {}
        with self._explain("show the settings of its topics"):
            asked = [ck_admin.ConfigResource(ck_admin.ConfigResource.Type.TOPIC, name) for name in topics]
            answers = _make_admin(self).describe_configs(asked, request_timeout=self.seconds)
            found = {str(topic.name): self._wait(answer) for topic, answer in answers.items()}
        return {topic: {name: str(entry.value) for name, entry in known.items()} for topic, known in found.items()}

    def make_topic(self, name: str, settings: Mapping[str, str]) -> None:
        """Make a topic of one partition with these settings. An existing topic is not changed."""
        with self._explain(f"make the topic {name}"):
            wanted = ck_admin.NewTopic(name, num_partitions=1, config=dict(settings))
            try:
                self._wait(_make_admin(self).create_topics([wanted], request_timeout=self.seconds)[name])
            except ck.KafkaException as error:
                if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise
            until = time.monotonic() + self.seconds
            while name not in _make_admin(self).list_topics(timeout=self.seconds).topics and time.monotonic() < until:
                time.sleep(0.05)  # until the brokers have announced it to each other

    def _find_topic(self, name: str, answer: Any) -> Any:
        try:
            return self._wait(answer)
        except ck.KafkaException as error:
            if error.args[0].name() == "TOPIC_AUTHORIZATION_FAILED":
                raise OriginError(
                    f"Kafka at {self.servers} does not show the topic {name} to this user.",
                    hint="Give the user the rights DESCRIBE and READ on the topic.",
                ) from error
            if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                raise
            raise OriginError(
                f"There is no topic {name} in Kafka at {self.servers}.",
                hint="Make the topic, or correct the name; `kafka-topics.sh --list` shows those that are there.",
            ) from error

    @contextmanager
    def _borrow_consumer(self) -> Iterator[ck.Consumer]:
        """Yield a consumer for one thread. It is kept for the next reader unless an error occurs."""
        idle = _list_idle(self)
        try:
            consumer = idle.pop()
        except IndexError:
            consumer = _make_consumer(self)
        try:
            yield consumer
            consumer.unassign()
        except BaseException:
            consumer.close()
            raise
        idle.append(consumer)

    @contextmanager
    def _explain(self, what: str) -> Iterator[None]:
        """Turn the client's errors within the context into `OriginError`. None of them contains a password."""
        try:
            client_error = ck.KafkaException
        except ImportError as error:
            raise OriginError(_MISSING.format(error), hint="pip install 'wherry[kafka]'") from error
        try:
            _make_admin(self).poll(0)
            _list_complaints(self).clear()
            yield
        except client_error as error:
            known = error.args[0]
            words = self._word_complaints(known.str())
            away = known.retriable() or known.name() in UNREACHABLE
            cause = ConnectionError(known.str()) if away and self._find_refusal() is None else error
            raise OriginError(f"Kafka at {self.servers} did not {what}: {words}.", hint=_CHECK) from cause
        except NoAnswer as error:
            words = self._word_complaints() or "it gave no answer"
            raise OriginError(f"Kafka at {self.servers} did not {what}: {words}.", hint=_CHECK) from ConnectionError(
                str(error)
            )

    def _wait(self, answer: Future[Any]) -> Any:
        """Return the brokers' answer. Raise `KafkaException` as soon as they refuse this user.

        The client itself would repeat the request until its time is over.
        """
        until = time.monotonic() + self.seconds + 1  # the client's own timeout, whose error says more, comes first
        while True:
            try:
                return answer.result(0.1)
            except NoAnswer:
                refusal = self._find_refusal()
                if refusal is not None:
                    raise ck.KafkaException(refusal) from None
                if time.monotonic() > until:
                    raise

    def _find_refusal(self) -> ck.KafkaError | None:
        """Return the brokers' error if they refuse the user of these settings; None otherwise."""
        _make_admin(self).poll(0)
        return next((each for each in _list_complaints(self) if each.name() == "_AUTHENTICATION"), None)

    def _word_complaints(self, *before: str) -> str:
        """Return these words, and the last errors that the client reported apart from its answers."""
        _make_admin(self).poll(0)
        return "; ".join(dict.fromkeys([*before, *(each.str() for each in _list_complaints(self)[-3:])]))


@functools.lru_cache(maxsize=16)
def _make_admin(cluster: Cluster) -> Any:
    own: dict[str, Any] = {"logger": silence_client(), "error_cb": _list_complaints(cluster).append}
    return ck_admin.AdminClient({**dict(cluster.settings), **own})


@functools.lru_cache(maxsize=16)
def _list_complaints(cluster: Cluster) -> list[ck.KafkaError]:
    """Return the list of errors that the client reports apart from its answers."""
    return []


@functools.lru_cache(maxsize=16)
def _list_idle(cluster: Cluster) -> list[ck.Consumer]:
    return []


_ONE_BY_ONE = {"max.partition.fetch.bytes": 1_024, "queued.max.messages.kbytes": 1_024}
"""The settings with which a consumer fetches little more than the requested messages."""


def _make_consumer(cluster: Cluster, **more: int) -> ck.Consumer:
    own = {
        "group.id": "wherry",  # the client requires one, and nothing is committed to it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 20,
    }
    return ck.Consumer({**dict(cluster.settings), **own, **more, "logger": silence_client()})


@functools.cache
def silence_client() -> Any:
    """Return a logger that drops everything. Otherwise the client also logs its errors on standard error."""
    logger = logging.getLogger("wherry.kafka")
    logger.setLevel(logging.CRITICAL + 1)
    return logger


def describe_missing_rights(missing: Sequence[str]) -> Need:
    """Return the problem that a user lacks these rights."""
    advice = "Give the user these rights with kafka-acls.sh."
    return Need(state="problem", found=f"the user lacks rights: {', '.join(missing)}", advice=advice)
