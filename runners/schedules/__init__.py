"""The scheduler, which runs pipelines when they are due."""
