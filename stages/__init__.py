"""What is done to rows on their way. `stage.py` is the contract; every other kind is one file."""

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
    "expect": "stages.expect:Expect",
    "python": "stages.python:Handler",
}
