"""The ways in which a batch is carried: which there are, which one is taken, and what each of them does."""
