"""What is done to rows on their way. `stage.py` is the contract; every other kind is one file."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stages.cast import Cast
    from stages.conformance import StageConformance
    from stages.deduplicate import Deduplicate
    from stages.drop import Drop
    from stages.expect.expect import Expect
    from stages.filter import Filter
    from stages.flatten import Flatten
    from stages.lookup import Lookup
    from stages.mask import Mask
    from stages.python import Handler
    from stages.python_call import discard, keep, nack
    from stages.rename import Rename
    from stages.require import Require
    from stages.rows import Rows
    from stages.select import Select
    from stages.sql import Sql
    from stages.stage import Stage
    from stages.with_columns import WithColumns
else:

    def __getattr__(name):
        from origins.lazy import load_export

        return load_export(__name__, name)

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = ["Cast", "Deduplicate", "Drop", "Expect", "Filter", "Flatten", "Handler", "Lookup", "Mask", "Rename"]
__all__ += ["Require", "Select", "Sql", "WithColumns"]
__all__ += ["discard", "keep", "nack"]
__all__ += ["Rows", "Stage", "StageConformance"]

KINDS = {
    "with_columns": "stages.with_columns:WithColumns",
    "select": "stages.select:Select",
    "rename": "stages.rename:Rename",
    "drop": "stages.drop:Drop",
    "cast": "stages.cast:Cast",
    "require": "stages.require:Require",
    "filter": "stages.filter:Filter",
    "sql": "stages.sql:Sql",
    "flatten": "stages.flatten:Flatten",
    "mask": "stages.mask:Mask",
    "deduplicate": "stages.deduplicate:Deduplicate",
    "lookup": "stages.lookup:Lookup",
    "expect": "stages.expect.expect:Expect",
    "python": "stages.python:Handler",
}
