"""Where what happened is written down: the contract, what keeps it, and its entries."""
