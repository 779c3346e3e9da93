"""A crash at a point by name, for tests."""
