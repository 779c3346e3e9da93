"""Listeners of a run: log lines, figures, hooks. Nobody waits for them."""
