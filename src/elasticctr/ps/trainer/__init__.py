"""The trainer role: leases chunks, computes gradients, exchanges them with pservers by a strategy."""
