"""Turns a trained run into a version in a repository (elasticctr.versions). Needs torch."""
