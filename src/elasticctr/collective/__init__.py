"""Training without servers: ranks that torchrun starts compute in step and hold the tables together."""
