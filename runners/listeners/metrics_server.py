"""Answers Prometheus, and whoever asks whether a scheduler is there, on a port of its own and in threads of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from runners.errors import Refusal

Answer = tuple[int, str]
"""A status of HTTP, and the text that goes with it."""
SLOWEST = 10.0
"""After so many seconds of silence a connection is closed."""


class MetricsServer:
    """Serves the pages while it is entered; each is made anew when somebody asks for it."""

    def __init__(self, pages: Mapping[str, Callable[[], Answer]], *, host: str, port: int) -> None:
        """Takes the port. Raises `Refusal` where it cannot be had."""
        try:
            self._server = _Server((host, port), _handler(pages))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise Refusal(
                f"Metrics cannot be served at {host}:{port}: {why}.",
                hint="Name another port by --metrics-port, or end what has this one.",
            ) from error
        self.port = int(self._server.server_address[1])
        """The port that it has, where 0 asked for any."""

    def __enter__(self) -> MetricsServer:
        threading.Thread(target=self._server.serve_forever, name="wherry-metrics", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        """Somebody who hangs up is no news."""


def _handler(pages: Mapping[str, Callable[[], Answer]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SLOWEST

        def do_GET(self) -> None:
            make = pages.get(self.path.partition("?")[0])
            status, said = make() if make else (404, f"There are: {', '.join(pages)}\n")
            body = said.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Being asked is no news."""

    return Handler
