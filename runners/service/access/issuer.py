"""Tokens of an identity provider (OpenID Connect): their names and rights."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit

import jwt

from runners.model.clock import Clock
from runners.model.errors import Refusal
from runners.service.operation import Caller, Forbidden, Right, Unauthenticated

_SIGNATURES = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures with two keys. With one key for both sides, a server that checks tokens could make them."""
_FRESH, _SELDOM = 3_600.0, 30.0
"""For how many seconds keys count, and after how many an unknown key lets them be read again."""
_PATIENCE = 10.0
_ROLE = "wherry."


@dataclass(kw_only=True)
class Issuer:
    """An identity provider. Its tokens are for this server if they name the audience."""

    url: str
    audience: str
    clock: Clock
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _keys: Mapping[str, jwt.PyJWK] = field(default_factory=dict)
    _read_at: float | None = None

    def __post_init__(self) -> None:
        place = urlsplit(self.url)
        if place.scheme != "https" and place.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise Refusal(f"Expected an identity provider at https://…, got {self.url!r}.")

    def recognise(self, token: str) -> Caller:
        """Return the caller with this token.

        Raise `Unauthenticated` for a token that another one made, that is for another server, or that has ended. Raise
        `Forbidden` for a token without a role of Wherry.
        """
        try:
            key = self._find_key(str(jwt.get_unverified_header(token).get("kid", "")))
            claims = jwt.decode(
                token,
                key,
                algorithms=_SIGNATURES,
                audience=self.audience,
                issuer=self.url,
                options={"require": ["exp", "iss", "aud", "sub"], "verify_exp": False, "verify_nbf": False},
            )
        except jwt.PyJWTError as error:
            raise Unauthenticated(f"The token of the identity provider does not count: {error}.") from error
        now = self.clock.now().timestamp()
        if not isinstance(claims["exp"], int | float) or claims["exp"] <= now or claims.get("nbf", 0) > now:
            raise Unauthenticated("The token of the identity provider has ended.", hint="Sign in again.")
        return _make_caller(claims)

    def _find_key(self, name: str) -> jwt.PyJWK:
        with self._lock:
            age = None if self._read_at is None else self.clock.elapsed() - self._read_at
            if age is None or age > (_SELDOM if name not in self._keys else _FRESH):
                self._keys, self._read_at = self._read_keys(), self.clock.elapsed()
            key = self._keys.get(name)
        if key is None:
            raise Unauthenticated("The identity provider has no key by which this token was signed.")
        return key

    def _read_keys(self) -> Mapping[str, jwt.PyJWK]:
        try:
            place = _fetch(f"{self.url.rstrip('/')}/.well-known/openid-configuration")["jwks_uri"]
            found = jwt.PyJWKSet.from_dict(_fetch(place)).keys
        except (URLError, OSError, ValueError, KeyError, TypeError, jwt.PyJWTError) as error:
            if self._keys:
                return self._keys
            raise Refusal(
                f"The keys of the identity provider {self.url} cannot be read: {type(error).__name__}.",
                hint="See whether this machine reaches it.",
            ) from error
        return {str(key.key_id): key for key in found}


def _fetch(url: str) -> Any:
    if urlsplit(url).scheme not in ("https", "http"):
        raise ValueError(url)
    with urllib.request.urlopen(url, timeout=_PATIENCE) as answer:  # noqa: S310 -- the line above allows only HTTP
        return json.loads(answer.read(1 << 20))


def _make_caller(claims: Mapping[str, Any]) -> Caller:
    """Return the caller that these claims are about. `roles` has `wherry.operate`, `wherry_pipelines` has names."""
    roles = claims.get("roles", [])
    known = {f"{_ROLE}{right.name.lower()}": right for right in Right}
    rights = [known[role] for role in (roles if isinstance(roles, list) else []) if role in known]
    name = str(claims["email"]) if claims.get("email_verified") is True and "email" in claims else str(claims["sub"])
    if not rights:
        raise Forbidden(f"{name} has no role of Wherry.", hint=f"Give it one of: {', '.join(known)}.")
    named = claims.get("wherry_pipelines")
    seen = None if named is None else frozenset(map(str, named if isinstance(named, list) else []))
    return Caller(name=name, right=max(rights), pipelines=seen)
