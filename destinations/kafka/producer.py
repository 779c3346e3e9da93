"""Sends messages to Kafka with Kafka's client. In a transaction, all messages of a batch become visible, or none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from destinations.destination import DestinationError, Written
from origins.kafka.client import UNREACHABLE, Cluster, silence_client
from origins.lazy import LazyModule

if TYPE_CHECKING:
    import confluent_kafka as ck
else:
    ck = LazyModule("confluent_kafka")

_BUFFER = 16 << 10
"""How many KiB of messages wait in this process at most. A slow broker takes these before their time is over."""
_POLL = 500
"""After how many messages the client is asked what happened to earlier ones."""
_LARGEST = 1_000_000_000
"""The largest message in bytes, by the limit of the client."""
OWN = (
    "bootstrap.servers",
    "enable.idempotence",
    "acks",
    "transactional.id",
    "delivery.report.only.error",
    "logger",
    "error_cb",
    "on_delivery",
)
"""The settings of the client that only Wherry sets."""


class ProducerFenced(Exception):
    """Another producer took over the lane's transactional id. No message of the batch became visible."""


class OutgoingMessage(NamedTuple):
    """A message to a topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None = None
    """The partition. If it is None, Kafka's client chooses one by the key."""
    headers: list[tuple[str, str | bytes | None]] = []  # noqa: RUF012 -- it is only read


@dataclass(eq=False)
class Sender:
    """A producer. It sends the messages of one batch at a time."""

    cluster: Cluster
    transactional_id: str = ""
    """The id of its transactions. Each batch is one transaction.

    A new sender with the same id ends the transactions of earlier senders.
    """
    largest: Sequence[int] = ()
    """How many bytes each topic takes at once, as far as they are known."""
    _producer: ck.Producer = field(init=False, repr=False)
    _refused: list[tuple[ck.KafkaError, ck.Message]] = field(default_factory=list, init=False, repr=False)
    _words: list[str] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        settings = dict(self.cluster.settings)
        sizes = [min(size, _LARGEST) for size in self.largest]
        preset: dict[str, Any] = {
            "linger.ms": 5,
            "partitioner": "murmur2_random",  # as Java's producers do
            "queue.buffering.max.kbytes": _BUFFER,
            "message.timeout.ms": int(self.cluster.seconds * 1000),
        }
        if sizes:
            preset |= {"message.max.bytes": max(1000, *sizes), "batch.size": min(1_000_000, *sizes)}
        if self.transactional_id:
            most = int(settings.get("transaction.timeout.ms", 900_000))
            preset |= {"transaction.timeout.ms": most, "transactional.id": self.transactional_id}
            preset["message.timeout.ms"] = min(most, preset["message.timeout.ms"])
        refused, words = self._refused, self._words  # not `self`, so that the client's threads can end
        own = {
            "enable.idempotence": True,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, message: refused.append((error, message)),
            "error_cb": lambda error: words.append(error.str()),
            "logger": silence_client(),
            "log_level": 2,  # the client's last messages bypass the logger
        }
        try:
            self._producer = ck.Producer({**preset, **settings, **own})
            if self.transactional_id:
                self._producer.init_transactions(self.cluster.seconds)
        except ck.KafkaException as error:
            raise self._explain(error, "open a producer") from error

    def send(
        self,
        messages: Iterable[OutgoingMessage],
        *,
        check: Callable[[], None],
        close: Callable[[Written], Sequence[OutgoingMessage]],
    ) -> Written:
        """Send these messages, and then those that `close` returns for what was sent.

        `check` is called right before the transaction is committed. If either raises, no message of a transaction
        becomes visible. Raises `ConnectionError` if the brokers did not answer, and `ProducerFenced`.
        """
        try:
            if self.transactional_id:
                self._producer.begin_transaction()
            sent = self._send_all(messages)
            self._send_all(close(sent))
            check()
            if self.transactional_id:
                self._commit()
        except (ck.KafkaException, SystemError) as error:
            self._abandon()
            known = error.__cause__ if isinstance(error, SystemError) else error  # a callback error after a fatal error
            if not isinstance(known, ck.KafkaException):
                raise
            raise self._explain(known, "take the rows of a batch") from known
        except BaseException:
            self._abandon()
            raise
        return sent

    def _send_all(self, messages: Iterable[OutgoingMessage]) -> Written:
        rows = size = 0
        for message in messages:
            self._produce(message)
            rows += 1
            size += len(message.key or b"") + len(message.value or b"")
            if rows % _POLL == 0:
                self._producer.poll(0)
                self._check_refused()
        while self._producer.flush(self.cluster.seconds):
            self._check_refused()
        self._check_refused()
        return Written(rows=rows, bytes=size)

    def _produce(self, message: OutgoingMessage) -> None:
        given: dict[str, Any] = {} if message.partition is None else {"partition": message.partition}
        while True:
            try:
                self._producer.produce(message.topic, message.value, message.key, headers=message.headers, **given)
                return
            except BufferError:  # the buffer is full: wait for an acknowledgement
                self._producer.poll(0.1)
                self._check_refused()

    def _check_refused(self) -> None:
        """Raise the error of the first message that Kafka refused."""
        if self._refused:
            error, message = self._refused[0]
            where = f"{message.topic()}" + (f"/{message.partition()}" if message.partition() not in (None, -1) else "")
            raise self._explain(ck.KafkaException(error), f"take a message for {where}")

    def _commit(self) -> None:
        until = time.monotonic() + self.cluster.seconds
        while True:
            try:
                self._producer.commit_transaction(self.cluster.seconds)
                return
            except ck.KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > until:
                    raise

    def _abandon(self) -> None:
        """Drop the waiting messages.

        The transaction is aborted: here, by the next sender, or by Kafka after its timeout.
        """
        try:
            self._producer.purge()
            if self.transactional_id:
                self._producer.abort_transaction(min(5.0, self.cluster.seconds))
        except (ck.KafkaException, SystemError) as error:
            self._words.append(str(error))

    def _explain(self, error: ck.KafkaException, what: str) -> Exception:
        """Return the error in Wherry's words. None of the client's texts has a password."""
        known = error.args[0]
        reasons = "; ".join(dict.fromkeys([known.str(), *self._words[-2:]]))
        text = f"Kafka at {self.cluster.servers} did not {what}: {reasons}."
        fenced = (ck.KafkaError._FENCED, ck.KafkaError.PRODUCER_FENCED, ck.KafkaError.INVALID_PRODUCER_EPOCH)  # noqa: SLF001 -- its public name
        fatal = bool(self.transactional_id) and known.code() == ck.KafkaError._FATAL  # noqa: SLF001 -- as well
        if known.code() in fenced or fatal:
            return ProducerFenced(
                f"{text} Another run or pipeline uses the transactional id {self.transactional_id}, or the transaction "
                "took longer than `transaction.timeout.ms`."
            )
        timed_out = ck.KafkaError._MSG_TIMED_OUT, ck.KafkaError._PURGE_QUEUE, ck.KafkaError._PURGE_INFLIGHT  # noqa: SLF001 -- as well
        if known.retriable() or known.name() in UNREACHABLE or known.code() in timed_out:
            return ConnectionError(text)
        return DestinationError(text, hint=_HINTS.get(known.name(), _CHECK))


_CHECK = "Nothing of the batch counts as delivered. Check `options`, the topic and its rights, then run again."
_HINTS: Mapping[str, str] = {
    "MSG_SIZE_TOO_LARGE": "Raise the topic's `max.message.bytes`, and `message.max.bytes` if `options` set it.",
    "INVALID_TRANSACTION_TIMEOUT": "Write `transaction.timeout.ms` in `options`: at most what the brokers allow in "
    "`transaction.max.timeout.ms`.",
    "UNKNOWN_TOPIC_OR_PART": "Make the topic, then run again.",
    "_UNKNOWN_TOPIC": "Make the topic, then run again.",
}
