"""The upkeep of stores with large values, which the stages `claim` and `unclaim` name."""
