"""The command `wherry`: its input, its calls and its output."""
