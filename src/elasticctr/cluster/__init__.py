"""Starts, places, watches and restarts the processes of a job: one file per engine behind one interface."""
