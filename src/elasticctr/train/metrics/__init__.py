"""Metrics of predictions, their confidence, and of segments of the data."""
