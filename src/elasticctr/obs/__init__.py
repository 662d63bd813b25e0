"""What a person or a machine sees of running work: the console, progress, events."""
