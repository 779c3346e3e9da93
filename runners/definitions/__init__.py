"""Definitions: pipelines in files, and how they are read, checked and shown."""
