"""What a person asks of a pipeline."""
