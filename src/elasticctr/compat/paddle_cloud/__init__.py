"""The PADDLE_* environment variables with which Paddle's platforms assign a process its role."""
