"""Readers of other people's configuration files. Only `cli` imports from here."""
