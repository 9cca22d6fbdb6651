"""What keeps the console safe: keys in cookies, no writes from elsewhere, nothing from elsewhere on a page."""

import re

import httpx2
import pytest

from tests.support.browsing import Browser
from tests.support.server import Server

INLINE = re.compile(r"<script(?![^>]* src=)|\son[a-z]+=|\sstyle=|<style|javascript:", re.IGNORECASE)


async def test_a_page_loads_and_runs_nothing_that_is_not_the_servers_own(browser: Browser) -> None:
    for path in ("/agents", "/sign-in", "/nothing-here"):
        page = await browser.open(path)
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "script-src 'self';" in policy
        assert not INLINE.search(page.text), path
        loaded = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
        assert all(url.startswith("/console/") for url in loaded), loaded
        files = [url for url in set(loaded) if "/static/" in url]
        sizes = [len((await browser.http.get(url)).content) for url in files]
        assert len(sizes) >= 5
        assert sum(sizes) + len(page.content) < 150_000


async def test_the_key_is_entered_once_and_kept_where_no_script_and_no_other_site_gets_at_it(
    server: Server, browser: Browser
) -> None:
    await server.operate()
    key = server.http.headers["authorization"].removeprefix("Bearer ")
    asked = await browser.open("/agents")
    assert asked.url.path == "/console/sign-in"
    wrong = await browser.send("/sign-in", key="msk_wrong")
    assert wrong.status_code == 403
    assert "There is no such API key." in wrong.text
    entered = await browser.send("/sign-in", key=key, after="/agents")
    assert (entered.status_code, entered.headers["location"]) == (303, "/console/agents")
    cookie = entered.headers["set-cookie"]
    for flag in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert flag in cookie
    assert "Secure" not in cookie
    page = await browser.open("/agents")
    assert page.url.path == "/console/agents"
    assert key not in page.text
    await browser.send("/sign-out")
    assert (await browser.open("/agents")).url.path == "/console/sign-in"


async def test_under_https_cookies_are_sent_over_https_alone(server: Server) -> None:
    transport = httpx2.ASGITransport(server.app)
    async with httpx2.AsyncClient(transport=transport, base_url="https://memory.example") as http:
        page = await http.get("/console/sign-in")
    assert "Secure" in page.headers["set-cookie"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
    ],
)
async def test_what_another_page_sends_changes_nothing(
    browser: Browser, headers: dict[str, str]
) -> None:
    await browser.open("/sign-in")
    refused = await browser.send("/sign-out", headers=headers)
    assert refused.status_code == 403
    assert "nothing was done" in refused.text


async def test_a_form_without_the_pages_token_changes_nothing(browser: Browser) -> None:
    await browser.open("/sign-in")
    browser.token = "guessed"
    refused = await browser.send("/sign-out")
    assert refused.status_code == 403
    assert "nothing was done" in refused.text


async def test_without_keys_no_other_machine_and_no_other_name_gets_a_page(server: Server) -> None:
    for client, base in [
        (("203.0.113.5", 1), "http://localhost"),
        (("127.0.0.1", 1), "http://evil.example"),
    ]:
        transport = httpx2.ASGITransport(server.app, client=client)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            host = base.removeprefix("http://")
            page = await http.get("/console/agents", headers={"Host": host})
        assert page.status_code == 403
        assert "The server has no API keys" in page.text


async def test_signing_in_leads_to_no_other_site(server: Server, browser: Browser) -> None:
    await server.operate()
    key = server.http.headers["authorization"].removeprefix("Bearer ")
    for after in ("//evil.example", "https://evil.example/", "/\\evil.example", "javascript:x"):
        await browser.open("/sign-in")
        entered = await browser.send("/sign-in", key=key, after=after)
        assert entered.headers["location"] == "/console/agents"


async def test_a_page_that_is_not_there_says_so_as_a_page(browser: Browser) -> None:
    page = await browser.open("/nothing-here")
    assert page.status_code == 404
    assert page.headers["content-type"].startswith("text/html")
    assert "There is no such page." in page.text
