"""A pipeline as it is written in a file: how it is read, checked and shown."""
