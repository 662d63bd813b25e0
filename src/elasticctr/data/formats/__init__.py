"""File formats of logs: readers, parsers and writers."""
