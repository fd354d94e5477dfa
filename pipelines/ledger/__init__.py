"""The journal, and the ledger that is made from it: records, batches, rejects, doubts, lease."""
