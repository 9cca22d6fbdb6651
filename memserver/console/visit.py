"""One request to the console: the API as the caller may use it, and pages as they are answered."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any
from urllib.parse import quote

import httpx2
from fastapi import Depends, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import FormData

from memserver.client import AsyncClient, Retries
from memserver.client.retries import error_in
from memserver.console.in_process import InProcess
from memserver.console.navigation import PAGES
from memserver.console.rendering import render, static_version
from memserver.console.safety import (
    PAGE_HEADERS,
    TOKEN_FIELD,
    TOKEN_HEADER,
    Cookies,
    check_token,
    new_token,
)

PREFIX = "/console"
MOST_FIELDS = 500


@dataclass(frozen=True)
class Visit:
    """What a page is made of; `request` is the browser's."""

    request: Request

    @cached_property
    def cookies(self) -> Cookies:
        return Cookies(self.request)

    @cached_property
    def http(self) -> httpx2.AsyncClient:
        """For what the client has no method for."""
        return httpx2.AsyncClient(
            transport=InProcess(self.request.scope),
            base_url="http://memserver",
            trust_env=False,
            timeout=None,
        )

    @cached_property
    def api(self) -> AsyncClient:
        """The public API with the caller's own key."""
        return AsyncClient(
            "http://memserver", api_key=self.cookies.key, retries=Retries(most=0), http=self.http
        )

    async def send(self, method: str, path: str, **options: Any) -> httpx2.Response:  # noqa: ANN401 - httpx2's
        """Ask the API for what the client has no method for; the head of the answer, whose body can be streamed.

        Raises:
            MemserverError: it was refused.
        """
        key = self.cookies.key
        headers = {
            **({"Authorization": f"Bearer {key}"} if key else {}),
            **options.pop("headers", {}),
        }
        request = self.http.build_request(method, path, headers=headers, **options)
        answer = await self.http.send(request, stream=True)
        if not answer.is_success:
            await answer.aread()
            raise error_in(answer)
        return answer

    @property
    def by_htmx(self) -> bool:
        """Whether a part of a page is wanted, and no whole one."""
        return "hx-request" in self.request.headers

    def url(self, *parts: object, **query: object) -> str:
        """A page's address; each part is a step of the path, whatever characters it has."""
        pairs = [f"{quote(name)}={quote(str(each), safe='')}" for name, each in _flat(query)]
        root: str = self.request.scope.get("root_path", "")
        return root + PREFIX + _steps(parts) + ("?" + "&".join(pairs) if pairs else "")

    def static(self, name: str) -> str:
        return self.url("static", *name.split("/"), v=static_version(name))

    def api_path(self, *parts: object) -> str:
        """Where the API has something, whatever characters its name has."""
        return "/v1" + _steps(parts)

    async def form(self) -> FormData:
        """What a form sent, which is one of ours. Raises Forbidden."""
        found = await self.request.form(max_fields=MOST_FIELDS, max_files=20)
        check_token(self.request, found, self.cookies.token)
        return found

    @cached_property
    def token(self) -> str:
        """What every form of the page carries."""
        return self.cookies.token or new_token()

    def render(self, template: str, **values: Any) -> str:  # noqa: ANN401 - a template's
        return render(
            template,
            url=self.url,
            static=self.static,
            visit=self,
            pages=PAGES,
            token=self.token,
            token_field=TOKEN_FIELD,
            token_header=TOKEN_HEADER,
            **values,
        )

    def page(self, template: str, status: int = 200, **values: Any) -> Response:  # noqa: ANN401 - a template's
        html = self.render(template, **values)
        response = HTMLResponse(html, status, headers=PAGE_HEADERS)
        if self.cookies.token is None:
            self.cookies.keep_token(response, self.token)
        return response

    def go(self, *parts: object, **query: object) -> Response:
        """Send the browser to another page, after something was done."""
        there = self.url(*parts, **query)
        if self.by_htmx:
            return Response(status_code=204, headers={"HX-Redirect": there})
        return RedirectResponse(there, 303)


def _steps(parts: tuple[object, ...]) -> str:
    return "".join(f"/{quote(str(part), safe='')}" for part in parts)


def _flat(query: dict[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in query.items():
        if isinstance(value, list | tuple):
            yield from ((name, each) for each in value)
        elif value not in (None, ""):
            yield name, value


async def _visit(request: Request) -> Visit:
    return Visit(request)


VisitDep = Annotated[Visit, Depends(_visit)]
