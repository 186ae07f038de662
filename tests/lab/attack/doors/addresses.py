"""Addresses given to be told at: would the platform knock at a door inside by a tenant's order?"""

from __future__ import annotations

import json

from tests.lab.attack.ground import Ground
from tests.lab.attack.probes import probe

INSIDE = (
    "127.0.0.1", "127.1", "0x7f000001", "2130706433", "0.0.0.0", "localhost", "x.localhost", "127.0.0.1.", "10.0.0.1",
    "169.254.169.254",
    "100.64.0.1", "192.0.0.1", "198.18.0.1", "240.0.0.1", "[::1]", "[::]", "[::127.0.0.1]", "[::ffff:127.0.0.1]",
    "[::ffff:0:127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[100::1]", "[2001::1]", "[2001:db8::1]",
    "[2002:7f00:1::]", "[3fff::1]", "[5f00::1]", "[fc00::1]", "[fe80::1]", "[fec0::1]", "[ff02::1]",
)  # fmt: skip
PORTS = (22, 25, 2375, 5432, 6379, 9200, 11_211)


def _taken(ground: Ground, urls: list[str]) -> str:
    taken = []
    for url in urls:
        body = json.dumps({"url": url, "events": ["task.failed"]}).encode()
        headers = {"Content-Type": "application/json"}
        answer = ground.ask("/api/v1/webhooks", "POST", body=body, key=True, headers=headers)
        if answer.status != 422:
            taken.append(f"{url} {answer.status}")
    return ", ".join(taken) or "none"


@probe("addresses", expected="none")
def places_inside(ground: Ground) -> str:
    """Webhooks to this machine and to networks inside, in every spelling and wrapping."""
    return _taken(ground, [f"{scheme}://{host}/" for host in INSIDE for scheme in ("http", "https")])


@probe("addresses", expected="none")
def ports_of_other_servers(ground: Ground) -> str:
    """Webhooks to public hosts at the ports of databases, mail and shells."""
    return _taken(ground, [f"http://hooks.example.org:{port}/" for port in PORTS])
