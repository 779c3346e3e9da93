"""The limits of serverless see through what newer clients do to their requests."""

from __future__ import annotations

import pytest
from pyspark.sql.connect.proto import base_pb2, relations_pb2

from tests.databricks.limits import SERVERLESS, STANDARD, Refused

compressed = pytest.mark.skipif(
    not hasattr(base_pb2.Plan, "CompressedOperation"), reason="this version of the client compresses no plans"
)


def make_request(relation: relations_pb2.Relation) -> bytes:
    """Return the request that runs a compressed plan."""
    import zstandard

    sent = base_pb2.Plan.CompressedOperation(
        data=zstandard.ZstdCompressor().compress(relation.SerializeToString()),
        op_type=base_pb2.Plan.CompressedOperation.OP_TYPE_RELATION,
        compression_codec=base_pb2.COMPRESSION_CODEC_ZSTD,
    )
    plan = base_pb2.Plan(compressed_operation=sent)
    return bytes(base_pb2.ExecutePlanRequest(plan=plan).SerializeToString())


@compressed
def test_a_compressed_plan_is_checked() -> None:
    """A relative path within a plan that the client has compressed is refused."""
    source = relations_pb2.Read.DataSource(format="csv", paths=["landing"])
    relation = relations_pb2.Relation(read=relations_pb2.Read(data_source=source))
    with pytest.raises(Refused, match="INVALID_PATH"):
        SERVERLESS.check("ExecutePlan", make_request(relation), {})


@compressed
def test_a_compressed_plan_is_counted() -> None:
    """Its statement names what is within."""
    relation = relations_pb2.Relation(range=relations_pb2.Range(end=3, step=1))
    assert SERVERLESS.check("ExecutePlan", make_request(relation), {}) == "query range"


@pytest.mark.parametrize(
    "keys",
    [
        ["spark.sql.timestampType", "spark.sql.session.timeZone"],
        ["spark.python.sql.dataFrameDebugging.enabled"],
        ["spark.sql.execution.pythonUDF.arrow.enabled"],
    ],
)
def test_the_client_reads_settings_of_its_own(keys: list[str]) -> None:
    """The open client asks for several settings at once, which no program can, and for a few alone."""
    asked = base_pb2.ConfigRequest.Get(keys=keys)
    request = base_pb2.ConfigRequest(operation=base_pb2.ConfigRequest.Operation(get=asked))
    assert SERVERLESS.check("Config", request.SerializeToString(), {}) == ""


def test_a_standard_cluster_takes_settings_and_keeps_frames() -> None:
    """What serverless alone refuses is allowed there."""
    setting = base_pb2.ConfigRequest.Get(keys=["spark.sql.caseSensitive"])
    request = base_pb2.ConfigRequest(operation=base_pb2.ConfigRequest.Operation(get=setting))
    kept = base_pb2.AnalyzePlanRequest(persist=base_pb2.AnalyzePlanRequest.Persist())
    assert STANDARD.check("Config", request.SerializeToString(), {}) == ""
    assert STANDARD.check("AnalyzePlan", kept.SerializeToString(), {}) == "analyze persist"
