"""Predictions over the network: versions of a repository, activated while requests are answered."""
