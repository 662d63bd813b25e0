"""Cube: the serving-time, read-only sparse parameter service. Reads published versions; knows nothing of training."""
