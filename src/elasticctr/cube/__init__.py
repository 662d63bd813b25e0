"""Cube: the serving-time, read-only sparse parameter service. A stranger to training: it reads published versions."""
