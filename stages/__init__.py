"""Stages: the changes to rows between origin and destination. `stage.py` has the contract; `KINDS` lists the kinds."""

from typing import TYPE_CHECKING

from origins.lazy import export_late

if TYPE_CHECKING:
    from stages.cast import Cast
    from stages.claim import Claim, Unclaim
    from stages.columns import Drop, Flatten, Rename, Select, WithColumns
    from stages.conditions import Filter, Require
    from stages.conformance import StageConformance
    from stages.deduplicate import Deduplicate
    from stages.expect.expect import Expect
    from stages.lookup import Lookup
    from stages.mask import Mask
    from stages.python import Handler
    from stages.python_call import discard, keep, nack
    from stages.rows import Rows
    from stages.sql import Sql
    from stages.stage import Stage
else:
    __getattr__, __dir__ = export_late(__name__)

__all__ = ["Cast", "Claim", "Deduplicate", "Drop", "Expect", "Filter", "Flatten", "Handler", "Lookup", "Mask"]
__all__ += ["Rename", "Require", "Select", "Sql", "Unclaim", "WithColumns"]
__all__ += ["discard", "keep", "nack"]
__all__ += ["Rows", "Stage", "StageConformance"]

KINDS = {
    "with_columns": "stages.columns:WithColumns",
    "select": "stages.columns:Select",
    "rename": "stages.columns:Rename",
    "drop": "stages.columns:Drop",
    "cast": "stages.cast:Cast",
    "require": "stages.conditions:Require",
    "filter": "stages.conditions:Filter",
    "sql": "stages.sql:Sql",
    "flatten": "stages.columns:Flatten",
    "mask": "stages.mask:Mask",
    "deduplicate": "stages.deduplicate:Deduplicate",
    "lookup": "stages.lookup:Lookup",
    "expect": "stages.expect.expect:Expect",
    "python": "stages.python:Handler",
    "claim": "stages.claim:Claim",
    "unclaim": "stages.claim:Unclaim",
}
