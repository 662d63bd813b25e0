"""What processes that direct each other share: HTTP both ways, atomic files, long work one can stop. No policy."""
