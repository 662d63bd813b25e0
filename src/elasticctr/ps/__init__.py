"""Training with parameter servers: the three roles, the strategies, the ledger of work.

docs/decisions/0004-parameter-servers.md is the design, docs/formats/ps-wire.md and coordinator-api.md the contracts.
"""
