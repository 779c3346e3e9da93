"""The values and pure rules of a pipeline. Nothing here needs Spark."""
