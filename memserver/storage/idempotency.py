"""Requests that are repeated under an idempotency key: who runs one, and the answer that is kept of it.

A request is claimed before it runs and its answer is recorded in the transaction of what it does, under the
condition that the claim still stands. So either both are there or none, and of two processes that both think
the request theirs only one can commit. A claim lasts as long as its process prolongs it.
"""

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from uuid import UUID

from memserver.errors import Conflict, DatabaseError, LeaseLost
from memserver.storage.database import Database, Transaction
from memserver.storage.ids import new_id
from memserver.storage.repeating import run_beside
from memserver.storage.rows import fetch_optional, fetch_value

logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.02
LONGEST_PAUSE = 1.0  # seconds after which a waiting repetition looks for the answer again
FORGET_AT_ONCE = 1000
FORGET_EVERY = 3600.0

# Takes a key that is free, whose time is over, or whose process died over the same request.
_CLAIM = """
INSERT INTO idempotency_keys AS i (tenant, key, fingerprint, claim, claimed_until, expires_at)
VALUES (%(tenant)s, %(key)s, %(fingerprint)s, %(claim)s, now() + make_interval(secs => %(lease)s),
        now() + make_interval(secs => %(lifetime)s))
ON CONFLICT (tenant, key) DO UPDATE SET
    fingerprint = excluded.fingerprint, claim = excluded.claim, status = NULL, content_type = '', body = '',
    claimed_until = excluded.claimed_until, created_at = now(), expires_at = excluded.expires_at
WHERE i.expires_at < now()
   OR i.status IS NULL AND i.claimed_until < now() AND i.fingerprint = excluded.fingerprint
RETURNING claim
"""
_READ = """SELECT fingerprint, status, content_type, body FROM idempotency_keys
    WHERE tenant = %s AND key = %s"""


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    status: int
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class _Stored:
    fingerprint: bytes
    status: int | None
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run a request."""

    tenant: str
    key: str
    id: UUID


class IdempotencyKeys:
    def __init__(self, database: Database, *, lease_seconds: float, lifetime: float) -> None:
        """Keys of a dead process are free after `lease_seconds`, all after `lifetime` seconds."""
        self._database = database
        self._lease_seconds = lease_seconds
        self._lifetime = lifetime

    async def claim(self, tenant: str, key: str, fingerprint: bytes) -> Claim | KeptAnswer:
        """The right to run a request, or its answer, which is waited for while another one runs it.

        Raises:
            Conflict: the key was used with another request.
        """
        pause = FIRST_PAUSE
        while True:
            claim = Claim(tenant, key, new_id())
            parameters = {
                "tenant": tenant,
                "key": key,
                "fingerprint": fingerprint,
                "claim": claim.id,
                "lease": self._lease_seconds,
                "lifetime": self._lifetime,
            }
            async with self._database.tenant(tenant) as tx:
                if await fetch_value(tx, _CLAIM, parameters) is not None:
                    return claim
                stored = await fetch_optional(tx, _Stored, _READ, [tenant, key])
            if stored is None:
                continue
            if stored.fingerprint != fingerprint:
                raise Conflict(
                    f"The idempotency key {key!r} was used with another request.",
                    hint="Take a fresh key for every new request.",
                )
            if stored.status is not None:
                return KeptAnswer(stored.status, stored.content_type, stored.body)
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, LONGEST_PAUSE)

    def held(self, claim: Claim) -> AbstractAsyncContextManager[None]:
        """Prolong a claim while the block runs."""
        return run_beside(self._renew(claim))

    async def record(self, tx: Transaction, claim: Claim, answer: KeptAnswer) -> None:
        """Keep the answer, in the transaction of what the request does.

        Raises:
            LeaseLost: another process has taken the request over; nothing of this one may be committed.
        """
        cursor = await tx.execute(
            """UPDATE idempotency_keys SET status = %s, content_type = %s, body = %s
               WHERE tenant = %s AND key = %s AND claim = %s AND status IS NULL""",
            [answer.status, answer.content_type, answer.body, claim.tenant, claim.key, claim.id],
        )
        if cursor.rowcount == 0:
            raise LeaseLost(
                "Another process has taken this request over.",
                hint="Send it again with the same Idempotency-Key: it gives that one's answer.",
            )

    async def release(self, claim: Claim) -> None:
        """Give the key back, as if it had not been used."""
        async with self._database.tenant(claim.tenant) as tx:
            await tx.execute(
                """DELETE FROM idempotency_keys
                   WHERE tenant = %s AND key = %s AND claim = %s AND status IS NULL""",
                [claim.tenant, claim.key, claim.id],
            )

    async def forget_expired(self) -> int:
        """Delete the answers whose time is over, of all tenants; returns how many."""
        total = 0
        while True:
            async with self._database.across_tenants() as tx:
                gone = int(await fetch_value(tx, "SELECT forget_answers(%s)", [FORGET_AT_ONCE]))
            total += gone
            if gone < FORGET_AT_ONCE:
                return total

    def running(self) -> AbstractAsyncContextManager[None]:
        """Forget what has expired, each hour while the block runs."""
        return run_beside(self._forget())

    async def _forget(self) -> None:
        while True:
            await asyncio.sleep(FORGET_EVERY)
            try:
                await self.forget_expired()
            except DatabaseError as error:
                logger.warning("Expired idempotency keys are not deleted yet: %s", error)

    async def _renew(self, claim: Claim) -> None:
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            try:
                async with self._database.tenant(claim.tenant) as tx:
                    await tx.execute(
                        """UPDATE idempotency_keys
                           SET claimed_until = now() + make_interval(secs => %s)
                           WHERE tenant = %s AND key = %s AND claim = %s""",
                        [self._lease_seconds, claim.tenant, claim.key, claim.id],
                    )
            except DatabaseError as error:
                logger.warning("A request's claim was not prolonged: %s", error)
