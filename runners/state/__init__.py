"""All that lasts: the ledger, who owns the pipeline, prepared batches, the history of runs."""
