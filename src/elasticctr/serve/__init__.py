"""Predictions over the network from versions of a repository, which are activated without interrupting requests."""
