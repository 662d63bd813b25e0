"""Turns versions in a repository into ones that answer: fetches, checks, activates and rolls them back."""
