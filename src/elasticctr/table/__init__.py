"""Sparse tables: feasign to row, thin over the native core."""
