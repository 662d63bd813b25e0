"""The training loop, checkpoints, metrics and evaluation."""
