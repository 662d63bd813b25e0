"""Searches for good settings of a job: many runs over a declared space, each an ordinary run directory."""
