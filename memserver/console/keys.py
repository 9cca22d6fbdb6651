"""API keys and tenants: made, shown once, revoked."""

from datetime import UTC, date, datetime, time

from fastapi.responses import Response
from starlette.datastructures import FormData

from memserver.client.models import Scope
from memserver.console.routing import PageRouter
from memserver.console.visit import VisitDep
from memserver.errors import InvalidInput

router = PageRouter()
SCOPES: tuple[Scope, ...] = ("read", "write", "admin")


@router.get("/keys")
async def list_keys(visit: VisitDep, tenant: str = "", after: str = "") -> Response:
    keys = await visit.api.keys.list(tenant=tenant or None, after=after or None, limit=50)
    tenants = await visit.api.tenants.list(limit=100)
    own = keys.items[0].tenant if keys.items else tenant or "default"
    return visit.page(
        "keys.html",
        section="keys",
        keys=keys,
        tenants=tenants.items,
        tenant=own,
        chosen=tenant,
        now=datetime.now(UTC),
    )


@router.post("/keys")
async def create_key(visit: VisitDep) -> Response:
    """Make a key; the answer to the form is the one page that ever shows it."""
    form = await visit.form()
    tenant = _text(form, "tenant")
    scopes = [each for each in SCOPES if each in form.getlist("scope")]
    made = await visit.api.keys.create(
        _text(form, "name"),
        scopes=scopes,
        expires_at=_end_of(_text(form, "expires")),
        tenant=tenant or None,
    )
    # Nothing else may fail now: once there is a key, callers without one are refused.
    first = visit.cookies.key is None
    response = visit.page("key_made.html", section="keys", made=made, chosen=tenant, first=first)
    response.headers["Cache-Control"] = "no-store"
    if first:
        visit.cookies.sign_in(response, made.key or "")
    return response


@router.post("/keys/{key}/revoke")
async def revoke_key(visit: VisitDep, key: str) -> Response:
    tenant = _text(await visit.form(), "tenant")
    await visit.api.keys.revoke(key, tenant=tenant or None)
    return visit.go("keys", tenant=tenant)


@router.post("/tenants")
async def create_tenant(visit: VisitDep) -> Response:
    made = await visit.api.tenants.create(_text(await visit.form(), "tenant"))
    return visit.go("keys", tenant=made.tenant)


def _text(form: FormData, name: str) -> str:
    value = form.get(name)
    return value.strip() if isinstance(value, str) else ""


def _end_of(day: str) -> datetime | None:
    """The end of a day as a form has it; None: none was chosen. Raises InvalidInput."""
    try:
        return datetime.combine(date.fromisoformat(day), time.max, UTC) if day else None
    except ValueError as error:
        raise InvalidInput(f"expires: {day!r} is no date.", hint="As in 2031-12-24.") from error
