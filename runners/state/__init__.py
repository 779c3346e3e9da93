"""Everything that lasts: the ledger, the owners of the pipeline, prepared batches, and the history of runs."""
