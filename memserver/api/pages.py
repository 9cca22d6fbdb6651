"""What a browser finds: the first page, and Swagger UI with all that it loads, so that it needs no internet."""

import base64
import hashlib
import re
from importlib.resources import files
from pathlib import Path
from string import Template

from fastapi import APIRouter, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response

import memserver

router = APIRouter(include_in_schema=False)
FILES = Path(str(files("fastapi_swagger"))) / "resources"
SCRIPT, STYLE, ICON = "swagger-ui-bundle.js", "swagger-ui.css", "favicon-32x32.png"
ASSETS = tuple(f"/docs/{name}" for name in (SCRIPT, STYLE, ICON))
OAUTH = ("/.well-known", "/mcp/.well-known", "/register", "/authorize", "/token")
"""Where MCP clients that know OAuth look for it, before they use a key."""
_BELOW_OAUTH = tuple(f"{each}/" for each in OAUTH)
ICONS = ("/favicon.ico", "/robots.txt", "/apple-touch-icon")
LINKS = {
    "docs": "/docs",
    "openapi": "/openapi.json",
    "health": "/v1/health",
    "ready": "/v1/ready",
    "agents": "/v1/agents",
}
_INLINE = re.compile(r"<script>(.*?)</script>", re.DOTALL)
# Links are relative, so that they also work behind a proxy that serves us below a path.
HOME = Template(Path(__file__).with_name("home.html").read_text(encoding="utf-8"))


CONSOLE = "/console"
"""Whose pages ask the API with the caller's own key, or lead to where one is entered."""


def looks_for_oauth(path: str) -> bool:
    return path in OAUTH or path.startswith(_BELOW_OAUTH)


def is_looked_for(path: str) -> bool:
    """Whether browsers or MCP clients look for it by themselves, and need no key to find nothing (404).

    Of a 401 they would read that there is something, and of OAuth's paths that the server has OAuth.
    """
    return path.startswith(ICONS) or looks_for_oauth(path)


@router.get("/")
async def show_home(request: Request) -> Response:
    """Where to go from here: a page for browsers, JSON for others."""
    if "text/html" in request.headers.get("accept", ""):
        if request.app.state.console:
            return RedirectResponse(f"{request.scope.get('root_path', '')}/console/agents", 303)
        url = str(request.base_url).rstrip("/")
        return _page(HOME.substitute(url=url, version=memserver.__version__))
    return JSONResponse({"name": "memserver", "version": memserver.__version__, **LINKS})


@router.get("/docs")
async def show_docs(request: Request) -> Response:
    """Swagger UI; its links are relative to the path as it was sent."""
    above = "../" if request.scope.get("raw_path", b"").endswith(b"/") else ""
    page = get_swagger_ui_html(
        openapi_url=f"{above}openapi.json",
        title="memserver",
        swagger_js_url=f"{above}docs/{SCRIPT}",
        swagger_css_url=f"{above}docs/{STYLE}",
        swagger_favicon_url=f"{above}docs/{ICON}",
        swagger_ui_parameters={"validatorUrl": None, "persistAuthorization": True},
    )
    return _page(bytes(page.body).decode())


@router.get(f"/docs/{SCRIPT}")
@router.get(f"/docs/{STYLE}")
@router.get(f"/docs/{ICON}")
async def send_asset(request: Request) -> Response:
    name = request.url.path.rpartition("/")[2]
    return FileResponse(FILES / name, headers={"Cache-Control": "public, max-age=3600"})


def _page(html: str) -> Response:
    """A page that loads from this server alone, and runs no script but its own."""
    scripts = [
        base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()
        for each in _INLINE.findall(html)
    ]
    allowed = "".join(f" 'sha256-{each}'" for each in scripts)
    policy = (
        f"default-src 'none'; script-src 'self'{allowed}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return HTMLResponse(html, headers={"Content-Security-Policy": policy})
