"""Templates, which escape whatever they are given, and how values are shown."""

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

import memserver
from memserver.console.charts import seconds

STOP_REASONS = {
    "cancelled": "Stopped.",
    "superseded": "A later message took its place.",
    "expired": "Nobody answered in time.",
    "max_steps": "It took all the steps that it may, and stopped.",
    "no_heartbeat": "The agent ended its turn without a message.",
    "terminal_tool": "The agent ended its turn with a tool.",
}
"""How a turn ended, where its last message doesn't say it."""


@lru_cache(maxsize=1)
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("memserver.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(
        version=memserver.__version__,
        stop_reasons=STOP_REASONS,
        as_seconds=seconds,
        as_number=thousands,
    )
    made.filters.update(
        thousands=thousands,
        moment=moment,
        marked=marked,
        as_json=as_json,
        kib=kib,
        preserved=preserved,
        seconds=seconds,
    )
    return made


def render(template: str, **values: Any) -> str:  # noqa: ANN401 - a template's
    return _environment().get_template(template).render(**values)


def thousands(number: float | None) -> str:
    """12 345: with thin spaces."""
    return "-" if number is None else f"{number:,.0f}".replace(",", "\u202f")


def moment(when: datetime | None) -> Markup:
    """A time, which console.js writes in the reader's own zone."""
    if when is None:
        return Markup("-")
    when = when.astimezone(UTC)
    shown = when.strftime("%Y-%m-%d %H:%M UTC")
    return Markup('<time datetime="{}">{}</time>').format(when.isoformat(), shown)


def marked(excerpt: str) -> Markup:
    """A search's excerpt, with what matched highlighted; text that merely has `**` in it stays escaped."""
    return Markup("").join(_pieces(excerpt))


def _pieces(excerpt: str) -> Iterator[Markup]:
    for number, piece in enumerate(excerpt.split("**")):
        yield Markup("<mark>{}</mark>").format(piece) if number % 2 else escape(piece)


def as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def kib(count: int) -> str:
    """Bytes."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"


def preserved(text: str) -> Markup:
    """Text whose line breaks survive where each line is sent by itself."""
    return Markup(escape(text).replace("\r", "").replace("\n", Markup("&#10;")))


@lru_cache(maxsize=32)
def static_version(name: str) -> str:
    """Of one of the console's own files: another one's address is another one, so that browsers may keep it."""
    return hashlib.sha256(static_file(name) or b"").hexdigest()[:12]


@lru_cache(maxsize=32)
def static_file(name: str) -> bytes | None:
    folder = files("memserver.console").joinpath("static")
    if name not in STATIC:
        return None
    return folder.joinpath(*name.split("/")).read_bytes()


STATIC = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "htmx/htmx.min.js": "text/javascript; charset=utf-8",
    "htmx-ext-sse/sse.min.js": "text/javascript; charset=utf-8",
}
"""What pages load, and as what."""
