"""Listeners of a run: log lines, figures, hooks. No run waits for them."""
