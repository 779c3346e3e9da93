"""A crash at a named point, for tests."""
