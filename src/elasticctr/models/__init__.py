"""Dense torch modules, one file each. They see tensors, never tables, files or networks."""
