"""Who hears of a run and tells somebody: log lines, figures, hooks. Nobody waits for them."""
