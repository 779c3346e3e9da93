"""Who may carry a pipeline, or which of its lanes, and for how long."""
