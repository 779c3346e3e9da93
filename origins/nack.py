"""A nack: a row refused, with the reason, the row as it stood before that, and the row as it was read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from origins.secret import EXCERPT

if TYPE_CHECKING:
    from pyspark.sql import Column

REFUSED = "_wherry_refused"
"""The column in which an origin refuses a row that it could not read: `struct<code, message, raw>`, all text,
NULL for a good row. `raw` is what was read, as it was found."""

REASON = "struct<code string, message string>"
NACK = (
    "struct<stage string, destination string, code string, message string, "
    "row string, row_schema string, original string, original_schema string>"
)
RAW = '{"type":"struct","fields":[{"name":"raw","type":"string","nullable":true,"metadata":{}}]}'
"""The schema of what is kept of a row that its origin could not read."""


def reason(code: str, message: Column) -> Column:
    """Why a row is refused: a code for machines and a message that names the column and the value."""
    from pyspark.sql import functions as F

    return F.struct(F.lit(code).alias("code"), message.alias("message"))


def shown(value: Column) -> Column:
    """The value as it stands in a message: in quotes, cut if it is long; NULL without them."""
    from pyspark.sql import functions as F

    whole = F.coalesce(F.make_valid_utf8(value.try_cast("string")), F.lit("this value"))
    cut = F.when(F.length(whole) > EXCERPT, F.concat(F.substring(whole, 1, EXCERPT), F.lit("…"))).otherwise(whole)
    return F.when(value.isNull(), F.lit("NULL")).otherwise(F.concat(F.lit("'"), cut, F.lit("'")))
