"""Signatures of webhook deliveries, by the Standard Webhooks specification (standardwebhooks.com).

Its libraries verify them in many languages; `verify` says in a few lines what they do.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping

SECRET_PREFIX = "whsec_"
TOLERANCE_SECONDS = 300


def new_secret() -> str:
    return f"{SECRET_PREFIX}{base64.b64encode(secrets.token_bytes(32)).decode()}"


def sign(secret: str, delivery: str, at: int, body: bytes) -> dict[str, str]:
    """The headers that identify, date and sign a delivery, with the same id for each attempt.

    A secret is "whsec_" followed by base64; any other text is taken as its bytes.
    """
    return {
        "webhook-id": delivery,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{_signature(secret, delivery, at, body)}",
    }


def verify(
    secret: str, headers: Mapping[str, str], body: bytes, *, now: float | None = None
) -> bool:
    try:
        at = int(headers["webhook-timestamp"])
        delivery, given = headers["webhook-id"], headers["webhook-signature"]
    except (KeyError, ValueError):
        return False
    if abs((time.time() if now is None else now) - at) > TOLERANCE_SECONDS:
        return False
    expected = f"v1,{_signature(secret, delivery, at, body)}"
    return any(hmac.compare_digest(expected, each) for each in given.split())


def _signature(secret: str, delivery: str, at: int, body: bytes) -> str:
    content = f"{delivery}.{at}.".encode() + body
    digest = hmac.new(_key(secret), content, hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def _key(secret: str) -> bytes:
    if secret.startswith(SECRET_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()
