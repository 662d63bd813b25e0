"""The coordinator: directs a run with pservers, keeps its ledger and its checkpoints. Imports no torch."""
