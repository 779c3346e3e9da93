"""The engine decides what happens to each batch; it carries no rows."""
