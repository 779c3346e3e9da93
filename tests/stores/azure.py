"""Azure's Blob Storage on this machine (Azurite), behind a proxy that counts requests and injects faults.

Azurite has no DFS endpoint, so it cannot rename a folder in one operation: it is an account without a hierarchical
namespace. Hadoop uses the Blob endpoint of such an account. There, it renames by a copy and a delete.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.child import Child
from tests.stores.fault_proxy import FaultProxy, start_proxy

AZURITE = "3.37.0"
FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / f"wherry-tests/azurite-{AZURITE}"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The default account of Azurite, and its well-known key."""

HOST = f"{ACCOUNT}.dfs.core.windows.net"


@dataclass(frozen=True)
class Azure:
    """A container for one test. Every request to `endpoint` goes through `proxy`."""

    proxy: FaultProxy
    container: str

    def make_url(self, key: str = "") -> str:
        """Return the URL of a key, for Spark and for deltalake."""
        return f"abfs://{self.container}@{HOST}/{key}"

    @property
    def spark_settings(self) -> dict[str, str]:
        """The settings for a Spark with the JARs."""
        settings = {
            "abfs.endpoint": self.proxy.endpoint.removeprefix("http://"),
            "always.use.https": "false",
            "networking.library": "JDK_HTTP_URL_CONNECTION",  # the other library needs certificates even without HTTPS
            "account.hns.enabled": "false",
            "fns.account.service.type": "BLOB",
            "account.auth.type": "SharedKey",
            f"account.key.{HOST}": KEY,
        }
        return {f"spark.hadoop.fs.azure.{name}": value for name, value in settings.items()}

    @property
    def storage_options(self) -> dict[str, str]:
        """The options for deltalake. obstore takes the same names."""
        return {
            "azure_storage_account_name": ACCOUNT,
            "azure_storage_account_key": KEY,
            "azure_storage_endpoint": f"{self.proxy.endpoint}/{ACCOUNT}",
            "azure_allow_http": "true",
        }


def install() -> None:
    """Install Azurite with npm, unless it is installed. Raises `RuntimeError` if that fails."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    handle = os.open(FOLDER, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if (FOLDER / "whole").exists():
            return
        quick = ["--omit=optional", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(FOLDER)]
        done = subprocess.run(
            ["npm", "install", *quick, f"azurite@{AZURITE}"], check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"npm could not install Azurite: {done.stderr}")
        (FOLDER / "whole").touch()
    finally:
        os.close(handle)


def say_why_not() -> str | None:
    """Return why Azurite cannot run here, or None if it can."""
    missing = [each for each in ("node", "npm") if shutil.which(each) is None]
    return f"Azurite needs {' and '.join(missing)}: install Node.js 20 or newer" if missing else None


@contextlib.contextmanager
def start_azurite(log: Path) -> Iterator[str]:
    """Start an account without containers, and yield the URL of its server."""
    install()
    program = FOLDER / "node_modules/azurite/dist/src/blob/main.js"
    options = ["--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence", "--disableTelemetry"]
    server = Child(["node", str(program), *options, "--skipApiVersionCheck", "--silent"], log)
    try:
        yield server.wait_for(r"listens on (http://127\.0\.0\.1:[1-9]\d*)").group(1)
    finally:
        server.end()


def make_container(url: str, container: str) -> None:
    """Make a container in the account of this server."""
    import base64
    import email.utils
    import hashlib
    import hmac
    import http.client
    from urllib.parse import urlsplit

    date, version = email.utils.formatdate(usegmt=True), "2021-12-02"
    path = f"/{ACCOUNT}/{container}"
    signed = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{version}\n/{ACCOUNT}{path}\nrestype:container"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()).decode()
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    headers = {"x-ms-date": date, "x-ms-version": version, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
    connection.request("PUT", f"{path}?restype=container", headers={**headers, "Content-Length": "0"})
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    connection.close()


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One account for all tests, as the URL of its server."""
    why = say_why_not()
    if why:
        pytest.skip(why)
    with start_azurite(tmp_path_factory.mktemp("azurite") / "azurite.log") as url:
        yield url


@pytest.fixture
def azure(azurite: str) -> Iterator[Azure]:
    """An empty container behind a proxy, for one test."""
    container = f"test-{uuid.uuid4().hex[:12]}"
    make_container(azurite, container)
    with start_proxy(azurite) as proxy:
        yield Azure(proxy, container)
