"""The command `wherry`: what it is given, what it calls, and what it prints."""
