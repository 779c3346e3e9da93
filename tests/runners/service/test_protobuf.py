"""The messages of gRPC: every value of a question and of an answer passes, and the published file shows the numbers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from msgspec import inspect

from runners.service import messages, protobuf
from runners.service.operation import Invalid
from runners.service.operations import OPERATIONS
from runners.service.protobuf import Converter, make_file, print_proto
from tests.runners.service.grpc_calls import BY_NAME, make_message, read_answer, write_question

TEXTS = ("", "a", "é\n\u2028 \0", "null", "{", "x" * 2_000)
NUMBERS = (0, 1, -1, 2**63 - 1, -(2**63))
JSON: Sequence[Any] = (
    None,
    "",
    [],
    {},
    0,
    2**64 + 1,
    10**40,
    -1.5,
    {"a": [None, {"b": 12345678901234567890123}]},
    "é",
    False,
)


def draw(dice: random.Random, kind: inspect.Type) -> Any:
    """Return a random value of a type, as JSON."""
    if isinstance(kind, inspect.UnionType):
        return draw(dice, dice.choice(kind.types))
    if isinstance(kind, inspect.StructType):
        return {each.encode_name: draw(dice, each.type) for each in kind.fields}
    if isinstance(kind, inspect.ListType):
        return [draw(dice, kind.item_type) for _ in range(dice.randrange(3))]
    if isinstance(kind, inspect.DictType):
        return {dice.choice(TEXTS): draw(dice, kind.value_type) for _ in range(dice.randrange(3))}
    values = {
        inspect.NoneType: (None,),
        inspect.AnyType: JSON,
        inspect.BoolType: (False, True),
        inspect.FloatType: (0.0, -0.5, 1e300, 0.1),
        inspect.IntType: NUMBERS,
        inspect.LiteralType: getattr(kind, "values", ()),
        inspect.StrType: TEXTS,
    }
    return dice.choice(values[type(kind)])


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: str(each.name))
def test_every_answer_passes_unchanged(operation: Any) -> None:
    """Null, empty, zero and integers of any size stay what they are."""
    dice, converter = random.Random(operation.name), Converter(operation)
    for _ in range(50):
        value = draw(dice, inspect.type_info(operation.answer))
        sent = converter.write_answer(msgspec.convert(value, operation.answer))
        assert read_answer(operation, sent) == value


def test_an_answer_that_was_kept_as_json_passes_too() -> None:
    """This is the answer to a repeated change."""
    kept = msgspec.Raw(b'{"pipeline":"orders","asked":true}')
    sent = Converter(BY_NAME["stop_run"]).write_answer(kept)
    assert sent == make_message(messages.Stopped, pipeline="orders", asked=True).SerializeToString()


def test_a_question_without_a_value_has_the_default() -> None:
    """A default that is not zero counts if the field is not sent."""
    asked = Converter(BY_NAME["list_runs"]).read_question(write_question(BY_NAME["list_runs"], {"pipeline": "orders"}))
    assert asked == messages.ListRuns(pipeline="orders")


def test_a_question_with_every_value_has_these_values() -> None:
    """Lists, numbers and truth values are read, and JSON in a text is decoded."""
    rows = {"pipeline": "orders", "ids": ["a", "b"], "limit": 7, "waiting": True, "contains": "é"}
    move = {"pipeline": "orders", "reason": "why", "lane": "0", "offset": {"at": 10**30}, "back": 3}
    for name, question in {"list_refused_rows": rows, "move_offsets": move}.items():
        operation = BY_NAME[name]
        asked = Converter(operation).read_question(write_question(operation, question))
        assert asked == msgspec.convert(question, operation.ask)


@pytest.mark.parametrize("text", ["", "null"])
def test_an_empty_offset_is_null(text: str) -> None:
    """A text of JSON may be left out."""
    data = make_message(messages.MoveOffsets, pipeline="orders", reason="why", offset=text).SerializeToString()
    asked = Converter(BY_NAME["move_offsets"]).read_question(data)
    assert asked == messages.MoveOffsets(pipeline="orders", reason="why", offset=None)


@pytest.mark.parametrize("text", ["{", "nul", "1 2", "NaN", "[" * 100_000])
def test_an_offset_that_is_no_json_is_refused(text: str) -> None:
    """The message names the field."""
    data = make_message(messages.MoveOffsets, pipeline="orders", reason="why", offset=text).SerializeToString()
    with pytest.raises(Invalid, match=r"^offset: expected a text of JSON"):
        Converter(BY_NAME["move_offsets"]).read_question(data)


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("list_runs", {"limit": 5}),
        ("list_runs", {"pipeline": "orders", "limit": 0}),
        ("list_runs", {"pipeline": "orders", "status": "odd"}),
        ("start_run", {"pipeline": "orders", "reason": ""}),
        ("start_run", {"pipeline": "orders", "reason": "  "}),
        ("hold_schedule", {"pipeline": "orders", "reason": "why"}),
        ("get_task", {"task": "a", "wait": 31.0}),
        ("get_task", {"task": "a", "wait": float("nan")}),
        ("change_dlq", {"pipeline": "orders", "reason": "why", "window": -1}),
    ],
)
def test_a_wrong_value_is_refused_in_the_words_of_msgspec(name: str, question: dict[str, Any]) -> None:
    """REST has the same words, because it converts to the same type."""
    operation = BY_NAME[name]
    with pytest.raises(msgspec.ValidationError) as expected:
        msgspec.convert(question, operation.ask)
    with pytest.raises(Invalid) as refused:
        Converter(operation).read_question(write_question(operation, question))
    assert refused.value.message == f"{expected.value}."


def test_a_field_with_an_unknown_number_is_refused() -> None:
    """Otherwise an older server would carry out a change that a newer client only wants to preview."""
    data = write_question(BY_NAME["run_audit"], {"pipeline": "orders"}) + b"\x98\x06\x01"
    with pytest.raises(Invalid, match="RunAudit has no field with the number 99"):
        Converter(BY_NAME["run_audit"]).read_question(data)


@pytest.mark.parametrize("data", [b"\x0a", b"\xff\xff", b"\x0a\x02\xc3\x28"])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    """They are cut off, or hold a text that is not UTF-8."""
    with pytest.raises(Invalid, match="The request is no message GetPipeline"):
        Converter(BY_NAME["get_pipeline"]).read_question(data)


def test_the_number_of_a_field_is_its_place() -> None:
    """This holds for every message."""
    for message in make_file().message_type:
        kind = getattr(messages, message.name)
        assert [each.name for each in message.field] == [each.encode_name for each in msgspec.structs.fields(kind)]
        assert [each.number for each in message.field] == list(range(1, len(message.field) + 1))


def test_each_type_has_its_type_in_protobuf() -> None:
    """Null is the absence of a field."""
    described = {each.name: each for each in make_file().message_type}
    entry = {each.name: each for each in described["PipelineEntry"].field}
    types = FieldDescriptorProto
    assert entry["pipeline"].type == types.TYPE_STRING
    assert not entry["pipeline"].proto3_optional
    assert (entry["refused"].type, entry["refused"].proto3_optional) == (types.TYPE_INT64, True)
    assert (entry["reads"].type, entry["reads"].label) == (types.TYPE_STRING, types.LABEL_REPEATED)
    assert entry["last_run"].type_name == ".wherry.v1.LastRun"
    assert entry["waiting"].type_name == ".wherry.v1.PipelineEntry.Waiting"
    (seconds,) = (each for each in described["Run"].field if each.name == "seconds")
    assert (seconds.type, seconds.proto3_optional) == (types.TYPE_DOUBLE, True)


def test_the_published_file_is_what_the_code_makes() -> None:
    """A field whose number changes would be read wrongly by every client that was made from this file."""
    file = Path(protobuf.__file__).with_name("wherry.proto")
    made = "from runners.service.protobuf import print_proto; print(print_proto(), end='')"
    advice = f'If clients may see this change, write the file:  python -c "{made}" > runners/service/wherry.proto'
    assert file.read_text(encoding="utf-8") == print_proto(), advice


def test_the_published_file_names_every_method_and_every_field() -> None:
    """The documentation of each one is above it."""
    text = print_proto()
    words = " ".join(text.replace("//", "").split())
    for operation in OPERATIONS:
        assert f"  rpc {operation.title}(wherry.v1.{operation.ask.__name__}) returns (" in text
        assert f"{operation.summary} Needs the right to {operation.right.name.lower()}." in words
    for message in make_file().message_type:
        body = text.partition(f"message {message.name} {{\n")[2].partition("\n}\n")[0]
        assert [each.name for each in message.field if f" {each.name} = {each.number};" not in body] == []
    assert "  // Its id, the beginning of it, or `last`. Required.\n  optional string run = 2;" in text
    assert "  // The default is 20.\n  optional int64 limit = 4;" in text
    assert "    map<string, int64> values = 1;\n" in text
    assert "returns (stream wherry.v1.Happening);" in text
