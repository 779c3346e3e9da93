"""The service: one table of operations over REST and gRPC, and a page. It is optional: the core does not know it."""
