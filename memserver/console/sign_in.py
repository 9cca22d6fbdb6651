"""Signing in and out: a key is entered once, and kept in a cookie that no script can read."""

from fastapi.responses import RedirectResponse, Response

from memserver.client import AsyncClient, Retries
from memserver.console.routing import PageRouter
from memserver.console.safety import is_key, local_path
from memserver.console.visit import PREFIX, VisitDep
from memserver.errors import InvalidApiKey, MemserverError

router = PageRouter()


@router.get("/sign-in")
async def show_sign_in(visit: VisitDep, after: str = "", why: str = "") -> Response:
    return visit.page("sign_in.html", after=local_path(after), why=why)


@router.post("/sign-in")
async def sign_in(visit: VisitDep) -> Response:
    form = await visit.form()
    key, after = str(form.get("key", "")).strip(), local_path(str(form.get("after", "")))
    try:
        if not is_key(key):
            raise InvalidApiKey("That is no API key.", hint="A key begins with msk_.")
        api = AsyncClient("http://memserver", api_key=key, retries=Retries(most=0), http=visit.http)
        await api.agents.list(limit=1)
    except MemserverError as error:
        return visit.page("sign_in.html", 403, after=after, why=error.message)
    response = RedirectResponse(visit.request.scope.get("root_path", "") + PREFIX + after, 303)
    visit.cookies.sign_in(response, key)
    return response


@router.post("/sign-out")
async def sign_out(visit: VisitDep) -> Response:
    await visit.form()
    response = visit.go("sign-in")
    visit.cookies.sign_out(response)
    return response
