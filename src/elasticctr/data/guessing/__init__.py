"""The format and schema of an unknown log, guessed from a sample."""
