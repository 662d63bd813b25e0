"""Feedback: joins logged requests with clicks into samples, and replays them through the trainer's code."""
