"""The roles of distributed training, and commands that look at a running job."""
