"""PaddleRec's configuration files (1.8 and 2.x), translated into our job files."""
