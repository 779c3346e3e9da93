"""The only code that knows which Spark it uses."""
