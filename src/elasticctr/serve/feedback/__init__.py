"""Feedback: logged requests, joined with clicks into samples, and replayed through the trainer's code."""
