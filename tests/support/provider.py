"""A provider of OpenID Connect on the loopback: what it publishes, and signed tokens for whoever the test says it is."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey

CLIENT, SECRET = "the-console", "a-secret-of-two"


@dataclass
class Provider:
    """Who comes next, and what is wrong with the token on purpose."""

    claims: dict[str, Any]
    url: str = ""
    key: Any = field(default_factory=lambda: ECKey.generate_key("P-256", {"kid": "first"}))
    signs_with: Any = None
    asked: dict[str, str] = field(default_factory=dict)
    """The query of the last authorization request."""
    wrong: dict[str, Any] = field(default_factory=dict)
    told: dict[str, Any] | None = None
    """What the user-info endpoint says."""

    def about(self) -> dict[str, Any]:
        """Its metadata."""
        names = {name: f"{self.url}/{name}" for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")}
        more = {"userinfo_endpoint": f"{self.url}/userinfo"} if self.told is not None else {}
        return {"issuer": self.url, "id_token_signing_alg_values_supported": ["ES256"], **names, **more}

    def token(self, form: dict[str, str]) -> dict[str, Any]:
        """The answer to a code, if it comes from whoever began."""
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == self.asked["code_challenge"]
        assert form["redirect_uri"] == self.asked["redirect_uri"]
        now = int(time.time())
        claims = {
            "iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": self.asked["nonce"],
            **self.claims, **self.wrong,
        }  # fmt: skip
        signed = jwt.encode({"alg": "ES256", "kid": "first"}, claims, self.signs_with or self.key)
        return {"access_token": "x", "token_type": "Bearer", "expires_in": 300, "id_token": signed}

    def answer(self, path: str, form: dict[str, str], authorization: str) -> dict[str, Any]:
        """Any of its endpoints."""
        if path.endswith("/token_endpoint"):
            assert authorization == f"Basic {base64.b64encode(f'{CLIENT}:{SECRET}'.encode()).decode()}"
            return self.token(form)
        if path.endswith("/userinfo"):
            return self.told or {}
        return {"keys": [self.key.as_dict(private=False)]} if path.endswith("/jwks_uri") else self.about()

    def come(self, browser: Any, then: str = "") -> Any:
        """Log in through it, as a browser does that is sent there and back."""
        sent = browser.get(f"/console/oidc/?next={then}")
        assert sent.status_code == 302, sent.content
        address = urlsplit(sent["Location"])
        assert sent["Location"].startswith(f"{self.url}/authorization_endpoint?")
        self.asked = {name: values[0] for name, values in parse_qs(address.query).items()}
        return browser.get("/console/oidc/callback/", {"code": "c", "state": self.asked["state"]})


@contextmanager
def provider(**claims: Any) -> Iterator[Provider]:
    """One that runs."""
    made = Provider(claims=claims)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            content = json.dumps(made.answer(self.path, form, self.headers.get("Authorization", ""))).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815 (the library's name)

        def log_message(self, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
