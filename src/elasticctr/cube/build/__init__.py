"""Rows of a version → the immutable files that cube servers hold, per shard."""
