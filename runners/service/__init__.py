"""The service: one table of operations over REST and gRPC, and a page. It is optional: the core does not know it."""

from importlib.util import find_spec

from runners.model.errors import Refusal

_MISSING = [name for name in ("grpc", "msgspec", "starlette", "uvicorn") if find_spec(name) is None]
if _MISSING:
    raise Refusal(
        f"The service needs {_MISSING[0]}, which is not installed.", hint='Type:  pip install "wherry[serve]"'
    )
