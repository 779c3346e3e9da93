"""Values and pure rules of a pipeline; nothing here needs Spark."""
