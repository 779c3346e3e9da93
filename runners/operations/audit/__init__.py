"""Whether the ledger, the destinations and the DLQ have each row once."""
