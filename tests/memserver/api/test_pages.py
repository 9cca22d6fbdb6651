"""What a browser finds, with the network closed."""

import re
from urllib.parse import urljoin, urlsplit

from memserver import __version__
from memserver.testing.scripted import ScriptedModel
from tests.support.server import OneDatabase, Server, serving

LINK = re.compile(r"""(?:href|src)=["']([^"']+)["']|url: ["']([^"']+)["']|@import[^;]+""")
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def links(server: Server, path: str) -> list[str]:
    page = await server.http.get(path, headers=BROWSER)
    assert page.status_code == 200
    found = [link or url for link, url in LINK.findall(page.text)]
    return [urljoin(f"http://localhost{path}", link) for link in found]


async def test_all_that_the_pages_load_comes_from_the_server_itself_and_needs_no_key(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel(), console=False) as server:
        await server.create_key(scopes=["admin"])
        found = [each for path in ("/", "/docs", "/docs/") for each in await links(server, path)]
        assert len(found) >= 12
        for url in found:
            assert urlsplit(url).netloc == "localhost", url
            answer = await server.http.get(url)
            assert answer.status_code == 200, url
            if url.endswith(".css"):
                assert not re.search(r"url\((?!['\"]?data:)", answer.text)
        kinds = {
            url.rpartition(".")[2]: (await server.http.get(url)).headers["content-type"]
            for url in found
            if "/docs/" in url
        }
        assert kinds["js"].startswith("text/javascript")
        assert kinds["css"].startswith("text/css")
        assert kinds["png"] == "image/png"
        assert (await server.http.get("/docs/nothing")).status_code == 401


async def test_the_first_page_says_what_this_is_and_where_to_go(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel(), console=False) as server:
        page = await server.http.get("/", headers=BROWSER)
        other = await server.http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert f"memserver {__version__}" in page.text
    assert "memserver chat sam" in page.text
    assert "http://localhost/v1/agents" in page.text
    assert other.json()["version"] == __version__
    assert other.json()["docs"] == "/docs"
