"""The parts models are made of. Each takes tensors and gives tensors."""
