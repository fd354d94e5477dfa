"""Accepted records to the target, one side of each row in the ledger."""
