"""The pserver role: one shard of the tables and of the dense vector."""
