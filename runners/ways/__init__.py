"""The ways in which Wherry processes a batch, and how it chooses one."""
