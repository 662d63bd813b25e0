"""How trainers share what they learn, one file per strategy. docs/concepts/strategies.md compares them."""
