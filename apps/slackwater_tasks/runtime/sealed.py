"""Secrets sealed and opened, and given to the tasks of their tenant.

Sealed with AES-256-GCM under a key derived from ``SLACKWATER_SECRETS_KEYS`` (the first seals, all open), bound to the
tenant and the name, so that a row copied to another tenant cannot be opened.
"""

from __future__ import annotations

import os
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from scheduler_ext.core.errors import ConfigurationError, NotFound
from slackwater_conf import sealing_keys
from slackwater_tasks.models import Secret

NONCE, TAG = 12, 16


@lru_cache(maxsize=8)
def _key(text: str) -> AESGCM:
    return AESGCM(HKDF(algorithm=SHA256(), length=32, salt=None, info=b"slackwater secrets").derive(text.encode()))


def _keys() -> list[AESGCM]:
    texts = sealing_keys()
    if not texts:
        raise ConfigurationError("set SLACKWATER_SECRETS_KEYS (or SLACKWATER_SECRET_KEY) to keep secrets")
    return [_key(text) for text in texts]


def _bound(tenant_id: int, name: str) -> bytes:
    return f"{tenant_id}:{name}".encode()


def seal(tenant_id: int, name: str, value: str) -> bytes:
    """Encrypt a value, with its nonce in front."""
    nonce = os.urandom(NONCE)
    return nonce + _keys()[0].encrypt(nonce, value.encode(), _bound(tenant_id, name))


def open_sealed(tenant_id: int, name: str, sealed: bytes) -> str:
    """Decrypt a value; ``ConfigurationError`` if none of the keys opens it."""
    for key in _keys():
        try:
            return key.decrypt(sealed[:NONCE], sealed[NONCE:], _bound(tenant_id, name)).decode()
        except InvalidTag:
            continue
    raise ConfigurationError(f"no key of SLACKWATER_SECRETS_KEYS opens the secret {name!r}: was a key dropped?")


def reveal(tenant_id: int, name: str) -> str:
    """The value, for a running task of that tenant; ``NotFound`` without one."""
    rows = Secret.objects.unscoped().for_tenant(tenant_id)  # the tenant is that of the running task
    sealed = rows.filter(name=name).values_list("sealed", flat=True).first()
    if sealed is None:
        raise NotFound(f"the tenant has no secret {name!r}", field="name")
    return open_sealed(tenant_id, name, bytes(sealed))


def open_all(tenant_id: int, rows: list[tuple[str, bytes]]) -> dict[str, str]:
    """All of a tenant's secrets, for one of its scripts."""
    return {name: open_sealed(tenant_id, name, bytes(sealed)) for name, sealed in rows}
