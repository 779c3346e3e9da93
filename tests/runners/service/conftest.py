"""Provide a server of a folder of pipelines."""

from tests.runners.service.served import indexer, pipelines, served

__all__ = ["indexer", "pipelines", "served"]
