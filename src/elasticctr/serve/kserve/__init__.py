"""KServe V2 (Open Inference): everything except predictions over HTTP, which are native."""
