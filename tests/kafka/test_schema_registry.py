"""The client of a schema registry sends few requests, and reports errors without the password."""

from __future__ import annotations

import json

import pytest

from origins.errors import OriginError
from origins.kafka.schema_registry import SchemaRegistry
from tests.kafka.registry import LATER, ORDER, PASSWORD, USER, Registry


def test_the_schemas_of_a_subject_are_those_of_all_versions(registry: Registry) -> None:
    """They are listed by id with the newest last, also if an old schema is registered again."""
    first, second = registry.register("a/b-value", ORDER), registry.register("a/b-value", LATER)
    client = SchemaRegistry.of({"url": registry.url + "/"})
    assert list(client.list_schemas("a/b-value")) == [first, second]
    registry.register("a/b-value", ORDER)
    assert list(client.list_schemas("a/b-value")) == [second, first]
    assert json.loads(client.get_schema(second)[-1]) == LATER


def test_a_schema_is_requested_once(registry: Registry) -> None:
    """Only the list of versions is requested again."""
    number = registry.register("orders-value", ORDER)
    client = SchemaRegistry.of({"url": registry.url})
    client.list_schemas("orders-value")
    registry.asked.clear()
    client.list_schemas("orders-value")
    client.get_schema(number)
    assert registry.asked == ["/subjects/orders-value/versions?deleted=true"]


def test_references_of_a_schema_come_before_it(registry: Registry) -> None:
    """The list has the referenced schema first."""
    registry.register("inner", {"type": "enum", "name": "State", "symbols": ["NEW"]})
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "state", "type": "State"}]}
    number = registry.register("outer", outer, references=[{"name": "State", "subject": "inner", "version": 1}])
    texts = SchemaRegistry.of({"url": registry.url}).get_schema(number)
    assert [json.loads(text)["name"] for text in texts] == ["State", "Outer"]


def test_a_user_needs_the_right_password(registry: Registry) -> None:
    """A wrong password is reported. It is in no error and no repr."""
    registry.register("orders-value", ORDER)
    registry.secure = True
    right = {"url": registry.url, "username": USER, "password": PASSWORD}
    assert len(SchemaRegistry.of(right).list_schemas("orders-value")) == 1
    client = SchemaRegistry.of({**right, "password": "wrong-horse"})
    with pytest.raises(OriginError, match=r"did not accept the user ada \(HTTP 401\)") as raised:
        client.list_schemas("orders-value")
    assert "wrong-horse" not in f"{raised.value} {client!r} {raised.value.__cause__!r}"


def test_a_registry_that_is_away_is_a_transient_error(registry: Registry) -> None:
    """The cause is a ConnectionError."""
    registry.close()
    with pytest.raises(OriginError, match=r"gives no answer: .*refused") as raised:
        SchemaRegistry.of({"url": registry.url}).list_schemas("orders-value")
    assert isinstance(raised.value.__cause__, ConnectionError)


@pytest.mark.parametrize("status", [408, 429, 503])
def test_a_busy_registry_is_a_transient_error(status: int, registry: Registry) -> None:
    """The error has the status, and its cause is a ConnectionError."""
    registry.fails_with = status
    with pytest.raises(OriginError, match=f"answered HTTP {status}") as raised:
        SchemaRegistry.of({"url": registry.url}).list_schemas("orders-value")
    assert isinstance(raised.value.__cause__, ConnectionError)


def test_an_incomplete_answer_is_a_transient_error(registry: Registry) -> None:
    """The registry sends fewer bytes than its header states."""
    registry.register("orders-value", ORDER)
    registry.missing_bytes = 10
    with pytest.raises(OriginError, match="gives no answer") as raised:
        SchemaRegistry.of({"url": registry.url}).list_schemas("orders-value")
    assert isinstance(raised.value.__cause__, ConnectionError)


def test_a_deleted_schema_is_not_the_newest(registry: Registry) -> None:
    """If all schemas of a subject are deleted, there is none."""
    client = SchemaRegistry.of({"url": registry.url})
    assert client.find_newest("orders-value") is None
    number = registry.register("orders-value", ORDER)
    registry.register("orders-value", LATER)
    registry.deleted.add(("orders-value", 2))
    assert client.find_newest("orders-value") == (number, (json.dumps(ORDER),))
    registry.deleted.add(("orders-value", 1))
    assert client.find_newest("orders-value") is None


def test_a_missing_id_is_named(registry: Registry) -> None:
    """The error states that a planned batch needs it."""
    with pytest.raises(OriginError, match="has no schema with id 7, which a planned batch needs"):
        SchemaRegistry.of({"url": registry.url}).get_schema(7)


def test_a_schema_of_another_kind_is_named(registry: Registry) -> None:
    """The error names its subject."""
    registry.register("orders-value", {}, schemaType="JSON")
    with pytest.raises(OriginError, match=r"The schema of orders-value in the registry .* is JSON, and not AVRO"):
        SchemaRegistry.of({"url": registry.url}).list_schemas("orders-value")


def test_a_missing_subject_has_no_schemas(registry: Registry) -> None:
    """It may be registered with the first message."""
    assert SchemaRegistry.of({"url": registry.url}).list_schemas("nothing") == {}
