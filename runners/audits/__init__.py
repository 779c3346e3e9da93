"""What the ledger says, against what is there; and mending what can be mended."""
