"""The contenders of `benchmarks/train.py`: one worker script per stack, and the orchestrator's side of them.

Worker scripts run in other interpreters with this folder on their path; they import their neighbours by bare name.
"""
