"""One run: it opens a pipeline, checks it, carries what waits, and stops."""
