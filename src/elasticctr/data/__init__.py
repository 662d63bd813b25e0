"""Click logs in, columnar batches out."""
