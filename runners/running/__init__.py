"""One run: it opens a pipeline, checks it, processes the waiting rows, and stops."""
