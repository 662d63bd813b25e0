"""Cube transfer: takes each published version to every cube server in two phases, and survives any crash."""
