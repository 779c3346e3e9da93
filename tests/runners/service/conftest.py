"""Provide a server of a folder of pipelines."""

from tests.runners.service.served import pipelines, served

__all__ = ["pipelines", "served"]
