"""A browser as a server sees it: it keeps cookies, says where a request comes from, and sends forms with their token."""

import re
from dataclasses import dataclass
from typing import Any

import httpx2
from starlette.types import ASGIApp

_TOKEN = re.compile(r'name="form_token" value="([^"]+)"|"Memserver-Form": "([^"]+)"')


@dataclass
class Browser:
    """It is on a page of the console's after its first `open`."""

    http: httpx2.AsyncClient
    token: str = ""

    async def open(self, path: str, **headers: str) -> httpx2.Response:
        """A page; of one that was redirected, where it leads to."""
        answer = await self.http.get(f"/console{path}", headers=headers, follow_redirects=True)
        if found := _TOKEN.search(answer.text):
            self.token = found[1] or found[2]
        return answer

    async def send(
        self, path: str, *, headers: dict[str, str] | None = None, **form: Any
    ) -> httpx2.Response:
        """A form of the page; what comes of it is not followed."""
        said = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin", **(headers or {})}
        data = {"form_token": self.token, **form}
        return await self.http.post(f"/console{path}", data=data, headers=said)

    async def sign_in(self, key: str) -> httpx2.Response:
        await self.open("/sign-in")
        return await self.send("/sign-in", key=key)


def visiting(app: ASGIApp) -> Browser:
    """A browser on the server's own machine."""
    transport = httpx2.ASGITransport(app)
    return Browser(httpx2.AsyncClient(transport=transport, base_url="http://localhost"))
