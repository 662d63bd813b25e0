"""The PADDLE_* environment variables by which older platforms tell a process its role."""
