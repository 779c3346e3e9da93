"""A client of a server, for Python: each operation of the server is a method."""

from __future__ import annotations

import http.client
import json
import ssl
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from origins.errors import WherryError
from runners.model.errors import Refusal
from runners.service.messages import Happening, Problem, Task
from runners.service.operation import Operation
from runners.service.operations import OPERATIONS

_TRIES = 3
"""How often a request is sent that got no answer. A change has the same key each time, so it is done once."""
_SLOWEST = 60.0
"""How many seconds an answer may take."""
_BY_NAME: Mapping[str, Operation] = {operation.name: operation for operation in OPERATIONS}


class ServerProblem(WherryError):
    """The server did not do what it was asked. The error has the code of the server's answer."""

    code = "SERVER"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail, hint=problem.hint)
        self.code = problem.code
        self.problem = problem


class Unreachable(WherryError):
    """No server answers. A change may have been done or not."""

    code = "UNREACHABLE"


@dataclass(frozen=True)
class Client:
    """A server of `wherry serve`, at an address such as http://127.0.0.1:8400, for the owner of a token.

    Each operation of the server is a method. It takes the fields of its question, and returns its answer. A change
    takes a `key` too; the default is a new one, and a request without an answer is sent again with the same key.

        client = Client("http://127.0.0.1:8400", token)
        task = client.start_run(pipeline="orders", reason="the file came late")
        report = client.wait(task).result

    A method raises `ServerProblem` if the server does not do it, and `Unreachable` if no server answers.
    """

    address: str
    token: str

    def __repr__(self) -> str:
        return f"Client({self.address!r})"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the method for an operation of the server."""
        operation = _BY_NAME.get(name)
        if operation is None or operation.streams:
            raise AttributeError(f"A server has no operation {name!r}; there are: {', '.join(sorted(_BY_NAME))}.")

        def call(*, key: str = "", **fields: Any) -> Any:
            body = self._send(operation, fields, key or uuid.uuid4().hex)
            return msgspec.json.decode(body, type=operation.answer)

        call.__name__, call.__doc__ = name, operation.act.__doc__
        return call

    def wait(self, task: Task, say: Callable[[str], None] = lambda _: None) -> Task:
        """Wait until a task has succeeded, and return it. `say` gets what it does.

        Raise `ServerProblem` if it failed or was stopped, and `Refusal` if it was cancelled before it began.
        """
        task = self.wait_for_end(task, say)
        if task.problem is not None:
            raise ServerProblem(task.problem)
        if task.state != "succeeded":
            raise Refusal(f"The server stopped this: {task.doing or task.state}.")
        return task

    def wait_for_end(self, task: Task, say: Callable[[str], None] = lambda _: None) -> Task:
        """Wait until a task has ended in any way, and return it. `say` gets what it does."""
        while task.ended_at is None:
            if task.doing:
                say(task.doing)
            task = self.get_task(task=task.task, wait=20)
        return task

    def watch(self, pipeline: str = "") -> Iterator[Happening]:
        """Yield what happens in the runs of the server, until the server ends or the iterator is closed."""
        connection = self._connect()
        try:
            response = self._request(connection, _BY_NAME["watch_events"], {"pipeline": pipeline}, "")
            for line in response:
                if line.startswith(b"data: "):
                    yield msgspec.json.decode(line[len(b"data: ") :], type=Happening)
        finally:
            connection.close()

    def _send(self, operation: Operation, fields: Mapping[str, Any], key: str) -> bytes:
        for left in reversed(range(_TRIES)):
            connection = self._connect()
            try:
                return self._request(connection, operation, fields, key).read()
            except (OSError, http.client.HTTPException) as error:
                if not left:
                    raise Unreachable(
                        f"The server at {self.address} cannot be reached: {error}.",
                        hint="See whether `wherry serve` runs there, and whether the address is right.",
                    ) from error
            finally:
                connection.close()
        raise AssertionError

    def _connect(self) -> http.client.HTTPConnection:
        place = urlsplit(self.address)
        if place.scheme not in ("http", "https") or not place.hostname:
            raise Refusal(f"Expected an address such as http://127.0.0.1:8400, got {self.address!r}.")
        if place.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(place.hostname, place.port, timeout=_SLOWEST, context=context)
        return http.client.HTTPConnection(place.hostname, place.port, timeout=_SLOWEST)

    def _request(
        self, connection: http.client.HTTPConnection, operation: Operation, fields: Mapping[str, Any], key: str
    ) -> http.client.HTTPResponse:
        """Send a request and return its answer. Raise `ServerProblem` if that is a problem."""
        given = {name: value for name, value in fields.items() if name not in operation.path_fields}
        path = operation.path.format(**{name: quote(str(fields[name]), safe="") for name in operation.path_fields})
        headers, body = {"Authorization": f"Bearer {self.token}"}, None
        if operation.changes:
            headers |= {"Content-Type": "application/json", "Idempotency-Key": key}
            body = json.dumps(given).encode()
        elif given:
            path += f"?{urlencode({name: _write_query(value) for name, value in given.items()}, doseq=True)}"
        connection.request(operation.method, path, body, headers)
        response = connection.getresponse()
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise ServerProblem(_read_problem(response))
        return response


def _write_query(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _read_problem(response: http.client.HTTPResponse) -> Problem:
    try:
        return msgspec.json.decode(response.read(), type=Problem)
    except msgspec.MsgspecError:
        detail = f"The server answered with the status {response.status} and no reason."
        return Problem(type="about:blank", title=response.reason, status=response.status, detail=detail, code="FAILED")
