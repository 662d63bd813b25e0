"""How trainers share what they learn, one file per strategy. docs/strategies.md compares them."""
