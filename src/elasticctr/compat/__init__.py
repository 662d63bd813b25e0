"""Readers of other systems' configuration files. Only `cli` imports from here."""
