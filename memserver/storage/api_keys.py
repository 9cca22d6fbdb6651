"""API keys and the tenants that they belong to. Leaves remembering keys between requests to `key_ring`.

A key is a random secret of 256 bits. What is stored is its SHA-256: nobody can guess such a secret, so a slow
hash or a pepper would only cost every request time, and a lookup by an equal digest needs no key's id.
"""

import hashlib
import secrets
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

import psycopg

from memserver.errors import Conflict, DatabaseError, NotFound
from memserver.storage.database import Transaction
from memserver.storage.ids import new_id
from memserver.storage.rows import (
    PageQuery,
    Table,
    fetch_all,
    fetch_one,
    fetch_optional,
    fetch_value,
)
from memserver.wire.keys import ApiKey, Scope, Tenant

DEFAULT_TENANT = "default"
"""The server's own tenant: everybody's while there are no keys. Its admins are the server's operators."""
PREFIX = "msk_"  # what every secret begins with, so that people and secret scanners recognise one
SCOPES: tuple[Scope, ...] = ("read", "write", "admin")
TENANT_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"  # names that tenants may have

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_CHARACTERS = 43  # 62 ** 43 > 2 ** 256
_CHECK_CHARACTERS = 6  # 62 ** 6 > 2 ** 32
_SHOWN_CHARACTERS = len(PREFIX) + 8


@dataclass(frozen=True, slots=True)
class NewKey:
    name: str
    scopes: Sequence[Scope]
    expires_at: datetime | None = None
    daily_tokens: int | None = None


_COLUMNS = ", ".join(ApiKey.model_fields)


@dataclass(frozen=True, slots=True)
class KnownKey:
    id: UUID
    tenant: str
    scopes: Sequence[Scope]
    expires_at: datetime | None
    revoked_at: datetime | None
    daily_tokens: int | None


def new_secret() -> str:
    """A fresh secret: a prefix, 256 random bits, and a checksum that distinguishes a mistyped one from a wrong one."""
    body = _base62(int.from_bytes(secrets.token_bytes(32)), _RANDOM_CHARACTERS)
    return f"{PREFIX}{body}{_checksum(body)}"


def is_secret(text: str) -> bool:
    """Whether a text has the form of a secret, its checksum included."""
    body = text[len(PREFIX) : -_CHECK_CHARACTERS]
    well_formed = len(body) == _RANDOM_CHARACTERS and text.isascii() and text.isprintable()
    return well_formed and text == f"{PREFIX}{body}{_checksum(body)}"


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


async def create(tx: Transaction, tenant: str, new: NewKey) -> tuple[ApiKey, str]:
    """The new key with its secret, which is stored nowhere. Raises NotFound: no such tenant."""
    secret = new_secret()
    shown = {"digest": digest_of(secret), "prefix": secret[:_SHOWN_CHARACTERS]}
    values = {**asdict(new), **shown, "scopes": sorted(set(new.scopes))}
    try:
        return await _TABLE.insert(tx, tenant, values), secret
    except psycopg.errors.ForeignKeyViolation as error:
        raise no_tenant(tenant) from error


async def revoke(tx: Transaction, key_id: UUID) -> ApiKey:
    """Revoke a key for good; one that is revoked stays so, with its first time."""
    query = f"""UPDATE api_keys SET revoked_at = coalesce(revoked_at, now())
                WHERE id = %s RETURNING {_COLUMNS}"""
    return await fetch_one(tx, ApiKey, query, [key_id], no_key(key_id))


async def use(tx: Transaction, digest: bytes) -> KnownKey | None:
    """The key of a secret's digest, of whatever tenant; its use is noted, to the minute."""
    return await fetch_optional(tx, KnownKey, "SELECT * FROM find_api_key(%s)", [digest])


async def exist(tx: Transaction) -> bool:
    """Whether there has ever been a key, of whatever tenant."""
    return bool(await fetch_value(tx, "SELECT api_keys_exist()"))


def exist_in(url: str) -> bool:
    """Whether there has ever been a key in the database of this URL. Raises DatabaseError."""
    try:
        with psycopg.connect(url, connect_timeout=10) as connection:
            row = connection.execute("SELECT api_keys_exist()").fetchone()
    except psycopg.Error as error:
        raise DatabaseError("The API keys can't be read.", detail=str(error)) from error
    return row is not None and bool(row[0])


def ensure_in(url: str, secret: str) -> None:
    """Store an operator's key in the database of this URL, unless it is there, be it revoked. Raises DatabaseError."""
    query = """INSERT INTO api_keys (id, tenant, name, digest, prefix, scopes)
               VALUES (%s, %s, 'MEMSERVER_ADMIN_KEY', %s, %s, '{admin}') ON CONFLICT (digest) DO NOTHING"""
    values = [new_id(), DEFAULT_TENANT, digest_of(secret), secret[:_SHOWN_CHARACTERS]]
    try:
        with psycopg.connect(url, connect_timeout=10) as connection:
            connection.execute("SELECT set_config('memserver.tenant', %s, true)", [DEFAULT_TENANT])
            connection.execute(query, values)
    except psycopg.Error as error:
        raise DatabaseError("The operator's key can't be stored.", detail=str(error)) from error


async def create_tenant(tx: Transaction, tenant: str) -> Tenant:
    """Create a tenant; the transaction is in its scope. Raises Conflict."""
    query = "INSERT INTO tenants (tenant) VALUES (%s) ON CONFLICT DO NOTHING RETURNING *"
    taken = Conflict(f"There is a tenant {tenant!r} already.")
    return await fetch_one(tx, Tenant, query, [tenant], taken)


async def get_tenant(tx: Transaction, tenant: str) -> Tenant:
    query = "SELECT * FROM tenants WHERE tenant = %s"
    return await fetch_one(tx, Tenant, query, [tenant], no_tenant(tenant))


async def set_retention(tx: Transaction, tenant: str, days: int | None) -> None:
    """Say for how long the tenant keeps messages and passages; None: for ever."""
    await tx.execute("UPDATE tenants SET retention_days = %s WHERE tenant = %s", [days, tenant])


async def list_tenants(tx: Transaction, page: PageQuery) -> list[Tenant]:
    """A page of all tenants by their names: for the server's operator alone."""
    query = "SELECT * FROM list_tenants(%s, %s, %s)"
    return await fetch_all(tx, Tenant, query, [page.after, page.limit, page.descending])


def no_tenant(tenant: str) -> NotFound:
    return NotFound(f"There is no tenant {tenant!r}.", hint="GET /v1/tenants lists them.")


def no_key(key_id: UUID) -> NotFound:
    return NotFound(f"There is no key {key_id}.", hint="GET /v1/keys lists yours.")


_TABLE = Table(ApiKey, "api_keys", _COLUMNS, no_key)
get, list_page = _TABLE.get, _TABLE.list_page


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECK_CHARACTERS)
