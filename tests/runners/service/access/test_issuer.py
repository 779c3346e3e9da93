"""Which tokens of an identity provider a server takes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from runners.model.errors import Refusal
from runners.service.access.guard import Guard
from runners.service.access.issuer import Issuer
from runners.service.access.tokens import Tokens
from runners.service.operation import Caller, Forbidden, Right, Unauthenticated
from tests.manual_clock import ManualClock


class Provider:
    """An identity provider on this machine. It counts how often its keys were read."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.names = ["first"]
        self.reads = 0
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(provider.answer(self.path)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, path: str) -> Any:
        if path == "/.well-known/openid-configuration":
            return {"jwks_uri": f"{self.url}/keys"}
        self.reads += 1
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": name, "alg": "RS256", "use": "sig"} for name in self.names]}

    def sign(self, clock: ManualClock, *, kid: str = "first", **claims: Any) -> str:
        """Return a token for an hour."""
        now = int(clock.now().timestamp())
        usual = {"iss": self.url, "aud": "wherry", "sub": "u1", "exp": now + 3_600, "roles": ["wherry.read"]}
        given = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return jwt.encode(given, self.key, algorithm="RS256", headers={"kid": kid})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def issuer(provider: Provider, clock: ManualClock) -> Issuer:
    return Issuer(url=provider.url, audience="wherry", clock=clock)


def test_a_token_of_the_provider_names_its_caller(issuer: Issuer, provider: Provider, clock: ManualClock) -> None:
    """An email counts as the name once the provider has verified it. The highest role counts."""
    said: dict[str, Any] = {
        "email": "ann@example.com",
        "email_verified": True,
        "roles": ["wherry.read", "wherry.operate", "other"],
    }
    token = provider.sign(clock, **said, wherry_pipelines=["orders"])
    wanted = Caller(name="ann@example.com", right=Right.OPERATE, pipelines=frozenset(["orders"]))
    assert issuer.recognise(token) == wanted


def test_an_email_that_is_not_verified_is_no_name(issuer: Issuer, provider: Provider, clock: ManualClock) -> None:
    """A person may write any email into an account."""
    assert issuer.recognise(provider.sign(clock, email="boss@example.com")).name == "u1"


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "another"},
        {"iss": "https://evil.example.com"},
        {"exp": 0},
        {"exp": None},
        {"sub": None},
        {"exp": "soon"},
        {"nbf": 1 << 40},
    ],
    ids=str,
)
def test_a_token_for_others_or_of_another_time_is_refused(
    issuer: Issuer, provider: Provider, clock: ManualClock, claims: dict[str, Any]
) -> None:
    """It names another server or another provider, or it has ended or not begun."""
    with pytest.raises(Unauthenticated):
        issuer.recognise(provider.sign(clock, **claims))


def test_a_token_ends_by_the_clock_of_the_server(issuer: Issuer, provider: Provider, clock: ManualClock) -> None:
    """It counts for its hour, and not after it."""
    token = provider.sign(clock)
    assert issuer.recognise(token).name == "u1"
    clock.move(3_601)
    with pytest.raises(Unauthenticated, match="ended"):
        issuer.recognise(token)


def test_a_token_without_a_role_is_forbidden(issuer: Issuer, provider: Provider, clock: ManualClock) -> None:
    """All people at the provider may have a token, and only some may use this server."""
    for roles in (None, [], ["admin"], "wherry.admin"):
        with pytest.raises(Forbidden, match=r"no role"):
            issuer.recognise(provider.sign(clock, roles=roles))


def test_pipelines_that_are_no_list_are_none(issuer: Issuer, provider: Provider, clock: ManualClock) -> None:
    """A wrong claim opens nothing."""
    assert issuer.recognise(provider.sign(clock, wherry_pipelines="orders")).pipelines == frozenset()


def test_a_token_that_another_key_signed_is_refused(issuer: Issuer, provider: Provider, clock: ManualClock) -> None:
    """It names the provider's key, and was made with another one."""
    payload = jwt.decode(provider.sign(clock), options={"verify_signature": False})
    other = ec.generate_private_key(ec.SECP256R1())
    forged = [
        jwt.encode(payload, other, algorithm="ES256", headers={"kid": "first"}),
        jwt.encode(payload, "x" * 64, algorithm="HS256", headers={"kid": "first"}),
        jwt.encode(payload, "", algorithm="none", headers={"kid": "first"}),
        "a.b.c",
        "é" * 9,
        "",
    ]
    for token in forged:
        with pytest.raises(Unauthenticated):
            issuer.recognise(token)


def test_a_new_key_of_the_provider_is_found(issuer: Issuer, provider: Provider, clock: ManualClock) -> None:
    """An unknown key lets the keys be read again, at most once in half a minute."""
    issuer.recognise(provider.sign(clock))
    provider.names = ["second"]
    for _ in range(20):
        with pytest.raises(Unauthenticated, match="no key"):
            issuer.recognise(provider.sign(clock, kid="second"))
    assert provider.reads == 1
    clock.move(31)
    assert issuer.recognise(provider.sign(clock, kid="second")).name == "u1"
    assert provider.reads == 2


def test_a_key_that_the_provider_withdrew_ends_within_the_hour(
    issuer: Issuer, provider: Provider, clock: ManualClock
) -> None:
    """The keys are read again after an hour."""
    issuer.recognise(provider.sign(clock))
    provider.names = ["second"]
    clock.move(3_601)
    with pytest.raises(Unauthenticated, match="no key"):
        issuer.recognise(provider.sign(clock))


def test_a_provider_without_tls_is_refused(clock: ManualClock) -> None:
    """A machine on the way could give keys of its own."""
    with pytest.raises(Refusal, match="https"):
        Issuer(url="http://login.example.com", audience="wherry", clock=clock)


def test_a_provider_that_cannot_be_reached_is_named(clock: ManualClock) -> None:
    """The first token needs its keys."""
    issuer = Issuer(url="http://127.0.0.1:9", audience="wherry", clock=clock)
    token = jwt.encode({"sub": "u1"}, rsa.generate_private_key(public_exponent=65537, key_size=2048), algorithm="RS256")
    with pytest.raises(Refusal, match=r"127\.0\.0\.1:9"):
        issuer.recognise(token)


@pytest.mark.parametrize("name", ["anna", "owner", "webhook", "provider:x"])
def test_a_name_that_another_caller_has_gets_a_prefix(
    issuer: Issuer, provider: Provider, clock: ManualClock, tmp_path: Path, name: str
) -> None:
    """A name of two callers is refused."""
    tokens = Tokens(file=tmp_path / "tokens.json", clock=clock)
    tokens.add("anna", "read")
    guard = Guard(tokens=tokens, clock=clock, issuer=issuer)
    assert guard.admit(f"Bearer {provider.sign(clock, sub=name)}").name == f"provider:{name}"
    with pytest.raises(Forbidden, match="name of two"):
        guard.admit(f"Bearer {provider.sign(clock, sub=f'agent, approved by {name}')}")
