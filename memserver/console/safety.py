"""What keeps the console safe in a browser: its cookies, where a write may come from, what a page may load."""

import re
import secrets
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response

from memserver.errors import Forbidden

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": POLICY,
    # With none at all, browsers send a page's own forms with the origin null.
    "Referrer-Policy": "same-origin",
}
KEY_DAYS = 30
TOKEN_HEADER = "Memserver-Form"
TOKEN_FIELD = "form_token"
_KEY = re.compile(r"[\x21-\x7e]{1,300}")


@dataclass(frozen=True, slots=True)
class Cookies:
    """The console's: the key of who signed in, and the token that each form carries."""

    request: Request

    @property
    def key(self) -> str | None:
        """The API key; None: nobody has signed in."""
        kept = self.request.cookies.get(self._name("key"), "")
        return kept if _KEY.fullmatch(kept) else None

    @property
    def token(self) -> str | None:
        return self.request.cookies.get(self._name("form"))

    @property
    def theme(self) -> str:
        """Light or dark; empty: as the browser is set."""
        chosen = self.request.cookies.get("memserver_theme", "")
        return chosen if chosen in {"light", "dark"} else ""

    def sign_in(self, response: Response, key: str) -> None:
        """Keep a key in the browser, where no script can read it and no other site can have it sent."""
        self._set(response, "key", key, KEY_DAYS * 86_400)

    def sign_out(self, response: Response) -> None:
        self._set(response, "key", "", 0)

    def keep_token(self, response: Response, token: str) -> None:
        self._set(response, "form", token, None)

    def _set(self, response: Response, name: str, value: str, max_age: int | None) -> None:
        response.set_cookie(
            self._name(name),
            value,
            max_age=max_age,
            path=self.request.scope.get("root_path", "") + "/",
            secure=self.request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    def _name(self, name: str) -> str:
        """Cookies are a host's, whatever its port: two servers on one machine keep theirs apart."""
        return f"memserver_{name}_{self.request.url.port or 0}"


def is_key(text: str) -> bool:
    """Whether it has the form of a key, which a header can carry."""
    return _KEY.fullmatch(text) is not None


def new_token() -> str:
    return secrets.token_urlsafe(16)


def check_origin(request: Request) -> None:
    """Let no other page write. Raises Forbidden."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    own = f"{request.url.scheme}://{request.headers.get('host', '')}"
    if site not in {None, "same-origin"} or (origin is not None and origin != own):
        raise Forbidden(
            "This was sent by another page, so nothing was done.",
            hint="Open the console, and do it there. Behind a proxy, MEMSERVER_TRUSTED_PROXIES has to name it.",
        )


def check_token(request: Request, form: FormData, expected: str | None) -> None:
    """Take only what one of the console's own pages sent. Raises Forbidden."""
    sent = request.headers.get(TOKEN_HEADER) or str(form.get(TOKEN_FIELD, ""))
    if not expected or not secrets.compare_digest(sent.encode(), expected.encode()):
        raise Forbidden(
            "The page was too old, so nothing was done.", hint="Load the page again, and repeat it."
        )


def local_path(wanted: str) -> str:
    """Where to go after signing in: a page of the console, whatever a link says."""
    parts = urlsplit(wanted)
    inside = not parts.scheme and not parts.netloc and re.fullmatch(r"/[a-z][^\\]*", parts.path)
    return wanted if inside else "/agents"
