"""Amazon's S3 in a process of its own: `python -m tests.stores.moto_server` prints its port, and serves.

moto looks whether a key is there and then writes it, in several threads. Here one request follows another, so that of
two conditional writes one wins, as at Amazon's.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any


class OneAtATime:
    """An application that answers one request after the other."""

    def __init__(self, application: Callable[[Any, Any], Iterable[bytes]]) -> None:
        self._application, self._turn = application, threading.Lock()

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        with self._turn:
            return list(self._application(environ, start_response))


def serve() -> None:
    """Answer for ever."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    class Quiet(MotoRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Thousands of lines would say nothing."""

    application = OneAtATime(create_backend_app("s3"))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    sys.stdout.write(f"port {server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    serve()
