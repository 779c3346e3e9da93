"""Pipelines run when they are due."""
