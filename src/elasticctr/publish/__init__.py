"""From a trained run to an immutable, numbered version in a repository."""
