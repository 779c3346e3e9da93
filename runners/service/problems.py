"""Errors as problems: what a caller gets over REST and gRPC when something is not done."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from http import HTTPStatus

from origins.errors import WherryError
from runners.service.messages import Problem

_STATUSES: Mapping[str, HTTPStatus] = {
    "INVALID": HTTPStatus.UNPROCESSABLE_ENTITY,
    "REFUSED": HTTPStatus.UNPROCESSABLE_ENTITY,
    "DEFINITION": HTTPStatus.UNPROCESSABLE_ENTITY,
    "STAGE": HTTPStatus.UNPROCESSABLE_ENTITY,
    "AGGREGATE": HTTPStatus.UNPROCESSABLE_ENTITY,
    "KEY_TAKEN": HTTPStatus.CONFLICT,
    "CHANGED": HTTPStatus.CONFLICT,
    "OWNED": HTTPStatus.CONFLICT,
    "PAUSED": HTTPStatus.CONFLICT,
    "NOT_FOUND": HTTPStatus.NOT_FOUND,
    "FORBIDDEN": HTTPStatus.FORBIDDEN,
    "UNAUTHENTICATED": HTTPStatus.UNAUTHORIZED,
    "TOO_MUCH": HTTPStatus.TOO_MANY_REQUESTS,
}
"""The status of HTTP by the code of an error. With any other code, something that the server needs cannot be used."""
log = logging.getLogger("wherry")


def describe_problem(error: BaseException) -> Problem:
    """Return what a caller gets for this error. An unexpected error is logged, and shows nothing of itself."""
    if isinstance(error, WherryError):
        return make_problem(error.code, error.message, hint=error.hint)
    number = uuid.uuid4().hex[:12]
    log.error("The server met an error that it did not expect, number %s.", number, exc_info=error)
    return make_problem(
        "UNEXPECTED",
        f"The server met an error that it did not expect, number {number}.",
        HTTPStatus.INTERNAL_SERVER_ERROR,
        hint="Its log has the error with this number.",
    )


def make_problem(code: str, detail: str, status: HTTPStatus | None = None, *, hint: str = "") -> Problem:
    """Return a problem with this code, and the status that belongs to the code."""
    status = status or _STATUSES.get(code, HTTPStatus.SERVICE_UNAVAILABLE)
    return Problem(
        type=f"urn:wherry:error:{code}", title=status.phrase, status=status, detail=detail, code=code, hint=hint
    )
