"""Cube installations of Paddle Serving: their configuration files, donefiles and HTTP paths."""
