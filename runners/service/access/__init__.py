"""Admits callers by their tokens, and checks their rights."""
