"""The operations that a person asks of a pipeline."""
