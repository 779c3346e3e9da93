"""Amazon's S3 in a separate process: `python -m tests.stores.moto_server` prints its port, and serves requests.

A PUT of `/_fill/BUCKET/FOLDER` makes as many objects there as its body states. That is faster than one PUT for each.

moto checks whether a key exists and then writes it, in several threads. This server answers one request at a time. So
only one of two conditional writes succeeds, as with Amazon's S3.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any


class OneAtATime:
    """An application that answers one request at a time."""

    def __init__(self, application: Callable[[Any, Any], Iterable[bytes]]) -> None:
        self._application, self._turn = application, threading.Lock()

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        with self._turn:
            return list(self._application(environ, start_response))


class Filling:
    """An application that makes many objects for one request."""

    def __init__(self, application: Callable[[Any, Any], Iterable[bytes]]) -> None:
        self._application = application

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        match = re.fullmatch(r"/_fill/([^/]+)/(.+)", environ["PATH_INFO"])
        if match is None:
            return self._application(environ, start_response)
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        count = int(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        for number in range(count):
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(match[1], f"{match[2]}/{number:06}.json", b"{}")
        start_response("204 No Content", [])
        return []


def serve() -> None:
    """Answer requests until the process ends."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    class Quiet(MotoRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Log nothing."""

    application = OneAtATime(Filling(create_backend_app("s3")))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    sys.stdout.write(f"port {server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    serve()
