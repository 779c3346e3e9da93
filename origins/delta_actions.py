"""What a Delta table's log says, as its lines of JSON have it. Writers leave out what they do not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypedDict

from origins.batch import Json


class FieldBody(TypedDict):
    """A column, or what stands in one."""

    name: str
    type: TypeBody
    nullable: bool
    metadata: Mapping[str, Json]


class NestedBody(TypedDict, total=False):
    """A type that has others in it: `struct`, `array` or `map`."""

    type: str
    fields: Sequence[FieldBody]
    elementType: TypeBody
    keyType: TypeBody
    valueType: TypeBody


TypeBody: TypeAlias = str | NestedBody
"""A type as Delta and Spark write it."""


class FileBody(TypedDict, total=False):
    """A file that a version adds or removes."""

    path: str
    size: int
    stats: str | None
    dataChange: bool
    deletionVector: Json
    partitionValues: Mapping[str, str | None]
    modificationTime: int


class CommitBody(TypedDict, total=False):
    """How a version was made."""

    timestamp: int | None
    operation: str
    operationParameters: Mapping[str, Json]
    operationMetrics: Mapping[str, str]
    userMetadata: str | None


class MetadataBody(TypedDict, total=False):
    """What a table is."""

    id: str
    configuration: Mapping[str, str]
    schemaString: str


class ActionBody(TypedDict, total=False):
    """A line of the log: one of these."""

    add: FileBody
    remove: FileBody
    cdc: FileBody
    commitInfo: CommitBody
    metaData: MetadataBody


class StatisticsBody(TypedDict, total=False):
    """What the writer of a file noted of its rows."""

    numRecords: int
    minValues: Mapping[str, Json]
    maxValues: Mapping[str, Json]
    nullCount: Mapping[str, Json]
