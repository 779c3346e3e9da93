"""Which runs there were, and pages about them."""
