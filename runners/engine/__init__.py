"""The engine, which decides what happens to each batch. It carries no rows."""
