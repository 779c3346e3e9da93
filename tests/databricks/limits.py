"""What the Spark of Databricks refuses, as a check of the requests that a Spark Connect client sends.

The conditions and codes are those of Databricks where its documentation has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message
from pyspark.sql.connect.proto import base_pb2, commands_pb2, relations_pb2

SERVERLESS_SETTINGS = frozenset(
    {
        "spark.sql.shuffle.partitions",
        "spark.sql.session.timeZone",
        "spark.sql.ansi.enabled",
        "spark.sql.files.maxPartitionBytes",
        "spark.sql.legacy.timeParserPolicy",
        "spark.databricks.execution.timeout",
    }
)
"""The settings that a program may read and set on serverless."""

_READ_BY_THE_CLIENT = frozenset(
    {
        "spark.sql.connect.serverStacktrace.enabled",
        "spark.sql.pyspark.jvmStacktrace.enabled",
        "spark.python.sql.dataFrameDebugging.enabled",
        "spark.sql.execution.pyspark.binaryAsBytes",
        "spark.sql.execution.pythonUDF.arrow.enabled",
        "spark.sql.execution.pythonUDTF.arrow.enabled",
    }
)
"""The settings that the open client reads one at a time. It reads others together, and programs cannot do that."""

LARGEST_RELATION = 128 << 20
"""How many bytes a local relation may have."""

_SET = re.compile(r"^\s*(?:re)?set\s+(?!time\s+zone|catalog|var|session\b)`?(?P<key>[\w.]+)`?", re.IGNORECASE)
_NO_SQL = {
    "CACHE TABLE": re.compile(r"^\s*(?:un)?cache\s+(?:lazy\s+)?table\b", re.IGNORECASE),
    "Global temporary views": re.compile(r"\bglobal\s+temp(?:orary)?\s+view\b", re.IGNORECASE),
    "ADD JAR": re.compile(r"^\s*add\s+jars?\b", re.IGNORECASE),
}
_PATH_IN_SQL = re.compile(
    r"\b(?:delta|parquet|json|csv|orc|text)\s*\.\s*`(?P<source>[^`]+)`"
    r"|\blocation\s+(?P<quote>['\"])(?P<location>.*?)(?P=quote)",
    re.IGNORECASE,
)

_WRITTEN = re.compile(
    r"\b(?:insert|merge)\s+(?:with\s+schema\s+evolution\s+)?into\s+(?:table\s+)?(?P<table>[\w.`]+)", re.IGNORECASE
)


class Refused(Exception):
    """What the server answers in place of a result."""

    def __init__(self, condition: str, message: str, state: str = "0A000") -> None:
        super().__init__(f"[{condition}] {message} SQLSTATE: {state}")
        self.condition, self.state = condition, state


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one kind of compute refuses."""

    settings: frozenset[str] | None = None
    """The settings that a program may touch; None for all."""
    keeps_frames: bool = True
    """Whether frames may be persisted and checkpointed, and global views and JARs be brought."""
    managed: tuple[str, ...] = ()
    """The folders of managed tables, which are reached by their names only."""
    kept: str = ""
    """The table to which the user must not write; its name with the schema."""

    def check(self, method: str, request: bytes, sizes: Mapping[str, int]) -> str:
        """Raise `Refused` if the server does not take this request of a method.

        Return the statement that it sends, or an empty string. `sizes` has the bytes of the artifacts so far.
        """
        checks: Mapping[str, Callable[[bytes], None]] = {
            "Config": lambda sent: self._check_settings(base_pb2.ConfigRequest.FromString(sent)),
            "AddArtifacts": lambda sent: self._check_artifacts(base_pb2.AddArtifactsRequest.FromString(sent)),
        }
        if method in checks:
            checks[method](request)
        if method == "AnalyzePlan":
            analysed = base_pb2.AnalyzePlanRequest.FromString(request)
            kind = str(analysed.WhichOneof("analyze"))
            if kind in ("persist", "unpersist", "get_storage_level"):
                self._refuse_kept("PERSIST TABLE is")
            self._check_plan(analysed, sizes)
            return f"analyze {kind}"
        if method == "ExecutePlan":
            plan = _decompress(base_pb2.ExecutePlanRequest.FromString(request).plan)
            self._check_plan(plan, sizes)
            return _describe(plan)
        return ""

    def _refuse_kept(self, what: str) -> None:
        if not self.keeps_frames:
            raise Refused("NOT_SUPPORTED_WITH_SERVERLESS", f"{what} not supported on serverless compute.")

    def _check_settings(self, request: base_pb2.ConfigRequest) -> None:
        kind = str(request.operation.WhichOneof("op_type"))
        asked = getattr(request.operation, kind)
        keys = ["*"] if kind == "get_all" else [pair.key for pair in asked.pairs] if _has_pairs(kind) else asked.keys
        of_client = kind.startswith("get") and (len(keys) > 1 or keys[0] in _READ_BY_THE_CLIENT)
        for key in () if of_client else keys:
            self._check_setting(key)

    def _check_setting(self, key: str) -> None:
        if self.settings is not None and key not in self.settings:
            raise Refused("CONFIG_NOT_AVAILABLE", f"Configuration {key} is not available.", "42K0I")

    def _check_artifacts(self, request: base_pb2.AddArtifactsRequest) -> None:
        if any(name.startswith("jars/") for name in measure_artifacts(request)):
            self._refuse_kept("JARs are")

    def _check_plan(self, plan: Message, sizes: Mapping[str, int]) -> None:
        for name, part in _walk(plan):
            if name in _CHECKS:
                _CHECKS[name](self, part)
            if _measure(name, part, sizes) > LARGEST_RELATION:
                raise Refused("LOCAL_RELATION_SIZE_LIMIT_EXCEEDED", "A local relation exceeds 128 MB.", "54000")

    def _check_sql(self, text: str) -> None:
        for found in _SET.finditer(text):
            self._check_setting(found["key"])
        for what, pattern in _NO_SQL.items():
            if pattern.search(text):
                self._refuse_kept(f"{what} is")
        for found in _PATH_IN_SQL.finditer(text):
            self._check_path(found["source"] or found["location"])
        for found in _WRITTEN.finditer(text):
            self._check_right(found["table"])

    def _check_source(self, part: relations_pb2.Read.DataSource) -> None:
        for path in [*part.paths, *(part.options[key] for key in part.options if key.lower() == "path")]:
            self._check_path(path)

    def _check_written(self, part: commands_pb2.WriteOperation) -> None:
        for path in [part.path, *(part.options[key] for key in part.options if key.lower() == "path")]:
            if path:
                self._check_path(path)

        self._check_right(part.table.table_name)

    def _check_right(self, table: str) -> None:
        if self.kept and table.replace("`", "").endswith(self.kept):
            what = f"User does not have permission MODIFY on Table '{self.kept}'."
            raise Refused("INSUFFICIENT_PERMISSIONS", f"Insufficient privileges: {what}", "42501")

    def _check_view(self, part: commands_pb2.CreateDataFrameViewCommand) -> None:
        if part.is_global:
            self._refuse_kept("Global temporary views are")

    def _check_path(self, path: str) -> None:
        bare = re.sub(r"^(dbfs|file):/*", "/", path)
        if not bare.startswith("/") and ":/" not in bare:
            raise Refused("INVALID_PATH", f"The path '{path}' is relative.", "42K0E")
        if any(f"{bare}/".startswith(f"{folder}/") for folder in self.managed):
            raise Refused("LOCATION_OVERLAP", f"Input path url '{path}' overlaps with managed storage.", "42K0L")


SERVERLESS = Limits(settings=SERVERLESS_SETTINGS, keeps_frames=False)
STANDARD = Limits()
"""A cluster that several people share. It refuses by its client what serverless refuses by its server."""

_CHECKS: Mapping[str, Callable[[Limits, Any], None]] = {
    "sql": lambda limits, part: limits._check_sql(part.query),
    "sql_command": lambda limits, part: limits._check_sql(part.sql),
    "data_source": Limits._check_source,
    "write_operation_v2": lambda limits, part: limits._check_right(part.table_name),
    "write_operation": Limits._check_written,
    "create_dataframe_view": Limits._check_view,
    "checkpoint_command": lambda limits, _: limits._refuse_kept("Checkpoints are"),
    "cache_table": lambda limits, _: limits._refuse_kept("CACHE TABLE is"),
}
"""How the parts of a plan are checked, by the names of their fields."""


def measure_artifacts(request: base_pb2.AddArtifactsRequest) -> dict[str, int]:
    """Return the bytes of the artifacts that begin in a request, by their names."""
    found = {each.name: len(each.data.data) for each in request.batch.artifacts}
    return {**found, request.begin_chunk.name: request.begin_chunk.total_bytes} if request.begin_chunk.name else found


def _measure(name: str, part: Any, sizes: Mapping[str, int]) -> int:
    """Return the bytes of the rows in a part of a plan that a client has sent with it or before it."""
    if name == "local_relation":
        return len(part.data)
    hashes = part.dataHashes if name == "chunked_cached_local_relation" else ()
    hashes = [part.hash] if name == "cached_local_relation" else hashes
    return sum(sizes.get(f"cache/{each}", 0) for each in hashes)


def _has_pairs(kind: str) -> bool:
    return kind in ("set", "get_with_default")


def _decompress(plan: base_pb2.Plan) -> base_pb2.Plan:
    """Return the plan as it is before newer clients compress it."""
    if plan.WhichOneof("op_type") != "compressed_operation":
        return plan
    import zstandard

    sent = plan.compressed_operation
    content = zstandard.ZstdDecompressor().decompressobj().decompress(sent.data)
    if sent.op_type == base_pb2.Plan.CompressedOperation.OP_TYPE_COMMAND:
        return base_pb2.Plan(command=commands_pb2.Command.FromString(content))
    return base_pb2.Plan(root=relations_pb2.Relation.FromString(content))


def _walk(message: Message) -> Iterator[tuple[str, Any]]:
    """Yield the field name and the value of each message within this one."""
    todo: list[Message] = [message]
    while todo:
        for described, value in todo.pop().ListFields():
            if described.message_type is None or described.message_type.GetOptions().map_entry:
                continue
            for part in [value] if isinstance(value, Message) else value:
                yield described.name, part
                todo.append(part)


def _describe(plan: base_pb2.Plan) -> str:
    if plan.WhichOneof("op_type") == "root":
        return f"query {plan.root.WhichOneof('rel_type')}"
    kind = str(plan.command.WhichOneof("command_type"))
    if kind != "sql_command":
        return kind
    text: Sequence[str] = (plan.command.sql_command.sql or plan.command.sql_command.input.sql.query).split()
    return f"sql {' '.join(text)[:200]}"
