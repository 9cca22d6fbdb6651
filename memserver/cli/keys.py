"""The commands `keys` and `tenants`, and where the server may listen without keys. The commands speak to the database, so they work where no key lets anybody in."""

import asyncio
import ipaddress
import re
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeVar
from uuid import UUID

import typer

from memserver.cli.console import console, print_json, print_table
from memserver.cli.options import JsonOption
from memserver.errors import InvalidInput, NotFound, SetupError
from memserver.settings import Settings
from memserver.storage import api_keys, usage
from memserver.storage.api_keys import DEFAULT_TENANT, NewKey
from memserver.storage.database import Database
from memserver.storage.rows import PageQuery
from memserver.wire.keys import ApiKey, Scope
from memserver.wire.usage import DailyUsage
from memserver.wiring.database import database_urls

T = TypeVar("T")

keys = typer.Typer(no_args_is_help=True, help="API keys: who may ask the server for what.")
tenants = typer.Typer(no_args_is_help=True, help="Tenants, who see nothing of each other.")

UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
MOST_YEARS = 100
TenantOption = Annotated[str, typer.Option(help="Whose key it is.")]


@keys.command("create")
def keys_create(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(help="read, write or admin; may be repeated. Left out: read and write."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="90d, 12h, 2w, or an ISO date; left out: never.")
    ] = None,
    tenant: TenantOption = DEFAULT_TENANT,
    daily_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Its turns may use on a day, in UTC; left out: no limit."),
    ] = None,
) -> None:
    """Create a key and print it, this once. From the first key on the server wants one."""
    if not name.strip():
        raise InvalidInput(
            "A key needs a name.", hint="Say what it is for: memserver keys create laptop"
        )
    scopes = _scopes(scope or ["read", "write"])
    new = NewKey(name.strip(), scopes, _expiry(expires), daily_tokens)

    async def create(database: Database) -> tuple[ApiKey, str]:
        async with database.tenant(tenant) as tx:
            return await api_keys.create(tx, tenant, new)

    made, secret = _run(create)
    print(
        f"Key {made.id} of tenant {tenant} ({', '.join(made.scopes)}). It is shown only now:",
        file=sys.stderr,
        flush=True,
    )
    print(secret)


@keys.command("generate")
def keys_generate() -> None:
    """Print a key that no server knows yet: for MEMSERVER_ADMIN_KEY, or the file that MEMSERVER_ADMIN_KEY_FILE names."""
    print(api_keys.new_secret())


@keys.command("list")
def keys_list(
    tenant: Annotated[str | None, typer.Option(help="Only its keys; left out: all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List keys, oldest first, revoked and expired ones too."""
    now = datetime.now(UTC)
    found = _run(lambda database: _all_keys(database, tenant))
    if as_json:
        print_json([key.model_dump(mode="json") for key in found])
        return
    rows = [
        (
            key.name,
            str(key.id),
            f"{key.prefix}…",
            key.tenant,
            " ".join(key.scopes),
            _state(key, now),
            _shown(key.created_at),
            _shown(key.last_used_at) or "never",
        )
        for key in found
    ]
    print_table(
        ("name", "id", "key", "tenant", "scopes", "state", "created", "last used"),
        rows,
        empty="There are no keys. `memserver keys create NAME` makes one.",
    )


@keys.command("revoke")
def keys_revoke(
    key: Annotated[str, typer.Argument(help="Its id, or its beginning as the list shows it.")],
) -> None:
    """Revoke a key for good. Running servers notice within MEMSERVER_KEY_CACHE_SECONDS."""

    async def revoke(database: Database) -> ApiKey:
        found = [each for each in await _all_keys(database, None) if _is_meant(key, each)]
        if len(found) != 1:
            raise NotFound(
                f"{len(found)} keys are named {key!r}.", hint="memserver keys list shows them."
            )
        async with database.tenant(found[0].tenant) as tx:
            return await api_keys.revoke(tx, found[0].id)

    revoked = _run(revoke)
    console.print(f"Revoked {revoked.name} ({revoked.id}) of tenant {revoked.tenant}.")


@tenants.command("create")
def tenants_create(name: Annotated[str, typer.Argument(help="Known by it for ever.")]) -> None:
    """Create a tenant; then give it a key."""
    if not re.fullmatch(api_keys.TENANT_PATTERN, name):
        raise InvalidInput(
            f"{name!r} is no name for a tenant.",
            hint="Up to 100 letters, digits, dots, hyphens and underscores, beginning with a letter or digit.",
        )

    async def create(database: Database) -> None:
        async with database.tenant(name) as tx:
            await api_keys.create_tenant(tx, name)

    _run(create)
    console.print(f"Created. Its first key: memserver keys create NAME --tenant {name}")


@tenants.command("list")
def tenants_list() -> None:
    """List tenants by their names."""
    for name in _run(_tenant_names):
        console.print(name)


@tenants.command("retention")
def tenants_retention(
    name: Annotated[str, typer.Argument(help="Of the tenant.")],
    days: Annotated[
        int | None, typer.Argument(min=1, max=36_500, help="Left out: everything is kept.")
    ] = None,
) -> None:
    """Say for how many days a tenant keeps messages and passages; older ones are deleted for good."""

    async def change(database: Database) -> None:
        async with database.tenant(name) as tx:
            await api_keys.get_tenant(tx, name)
            await api_keys.set_retention(tx, name, days)

    _run(change)
    kept = (
        f"for {days} days; what is older is deleted within an hour"
        if days
        else "until they are deleted"
    )
    console.print(f"{name} keeps messages and passages {kept}.")


@tenants.command("usage")
def tenants_usage(
    name: Annotated[str, typer.Argument(help="Whose.")] = api_keys.DEFAULT_TENANT,
    days: Annotated[int, typer.Option(min=1, max=366, help="Up to today, in UTC.")] = 30,
    as_json: JsonOption = False,
) -> None:
    """Show the tokens that a tenant's turns used, day by day."""

    async def read(database: Database) -> list[DailyUsage]:
        async with database.tenant(name) as tx:
            await api_keys.get_tenant(tx, name)
            return await usage.by_day(tx, days)

    found = [each.model_dump(mode="json") for each in _run(read)]
    if as_json:
        print_json(found)
        return
    columns = list(DailyUsage.model_fields)
    rows = [tuple(str(each[column]) for column in columns) for each in found]
    print_table(columns, rows, empty=f"No turn of {name} has ended in these days.")


def ensure_admin_key(app_url: str, settings: Settings) -> None:
    """Have the operator's key of the settings in the database. Raises SetupError: it is none."""
    if settings.admin_key is None:
        return
    secret = settings.admin_key.get_secret_value()
    if not api_keys.is_secret(secret):
        raise SetupError(
            "MEMSERVER_ADMIN_KEY is no API key.", hint="memserver keys generate prints one."
        )
    api_keys.ensure_in(app_url, secret)


def check_keys(app_url: str, settings: Settings) -> None:
    """Without API keys the server listens on the loopback alone, and says so.

    Raises:
        SetupError: it should listen elsewhere, to every web page, or to a proxy.
    """
    if api_keys.exist_in(app_url):
        return
    if "*" in settings.cors_origins:
        raise SetupError(
            "There are no API keys, so MEMSERVER_CORS_ORIGINS can't be every origin: any web page "
            "could read and change all that the server holds.",
            hint="Create a key: memserver keys create NAME. Or name the pages' origins.",
        )
    if settings.trusted_proxies:
        raise SetupError(
            "There are no API keys, so no proxy can be trusted: only this machine may ask.",
            hint="Create a key: memserver keys create NAME. Or unset MEMSERVER_TRUSTED_PROXIES.",
        )
    if not _is_loopback(settings.host):
        raise SetupError(
            f"There are no API keys, so memserver listens on the loopback only, not on {settings.host}.",
            hint="Create one: memserver keys create NAME. Or leave out the host.",
        )
    console.print(
        "There are no API keys: only this machine can reach the server, and needs none. "
        "`memserver keys create NAME` makes one."
    )


def _is_loopback(host: str) -> bool:
    try:
        found = socket.getaddrinfo(host, None)
    except OSError:
        return False
    return all(ipaddress.ip_address(address[4][0]).is_loopback for address in found)


def _run(work: Callable[[Database], Awaitable[T]]) -> T:

    async def run(url: str) -> T:
        async with _open(url) as database:
            return await work(database)

    with database_urls(Settings()) as urls:
        return asyncio.run(run(urls.app))


@asynccontextmanager
async def _open(url: str) -> AsyncIterator[Database]:
    database = Database(url, pool_size=2)
    await database.open()
    try:
        yield database
    finally:
        await database.close()


async def _tenant_names(database: Database) -> list[str]:
    names: list[str] = []
    async with database.across_tenants() as tx:
        while page := await api_keys.list_tenants(
            tx, PageQuery(1000, names[-1] if names else None)
        ):
            names += [each.tenant for each in page]
    return names


async def _all_keys(database: Database, tenant: str | None) -> list[ApiKey]:
    found: list[ApiKey] = []
    for name in [tenant] if tenant else await _tenant_names(database):
        async with database.tenant(name) as tx:
            await api_keys.get_tenant(tx, name)
            after: UUID | None = None
            while page := await api_keys.list_page(tx, PageQuery(1000, after)):
                found += page
                after = page[-1].id
    return sorted(found, key=lambda key: key.id)


def _is_meant(name: str, key: ApiKey) -> bool:
    return name == str(key.id) or name.rstrip("…") == key.prefix


def _scopes(names: list[str]) -> list[Scope]:
    for name in names:
        if name not in api_keys.SCOPES:
            raise InvalidInput(f"There is no scope {name!r}.", hint="read, write, admin.")
    return [scope for scope in api_keys.SCOPES if scope in names]


def _expiry(text: str | None) -> datetime | None:
    if text is None:
        return None
    now = datetime.now(UTC)
    span = re.fullmatch(r"(\d{1,6})([hdw])", text)
    try:
        if span:
            at = now + int(span[1]) * UNITS[span[2]]
        else:
            at = datetime.fromisoformat(text)
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(f"{text!r} is no time.", hint="90d, 12h, 2w, 2027-01-31.") from None
    if not now < at < now + MOST_YEARS * 365 * UNITS["d"]:
        raise InvalidInput(f"{text!r} is over already, or too far away.", hint="Name a later time.")
    return at


def _state(key: ApiKey, now: datetime) -> str:
    if key.revoked_at is not None:
        return f"revoked {_shown(key.revoked_at)}"
    if key.expires_at is None:
        return "valid"
    return f"{'expired' if key.expires_at <= now else 'until'} {_shown(key.expires_at)}"


def _shown(at: datetime | None) -> str:
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")
