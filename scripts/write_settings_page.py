"""Writes docs/settings.md from memserver.settings: every setting, its variable, default and meaning.

Run it after a change of the settings: `python scripts/write_settings_page.py`. The meanings are
the texts below the fields; a test fails where the page is out of date.
"""

import ast
import inspect
import types
import typing
from pathlib import Path

from pydantic import IPvAnyNetwork, SecretStr
from pydantic.fields import FieldInfo

from memserver import settings
from memserver.settings import Settings

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"

HEAD = """# Settings

<!-- Written by scripts/write_settings_page.py from memserver/settings.py; edit that. -->

Settings are environment variables. A file `.env` in the working directory is read too; the environment takes
precedence. `memserver serve` has the options `--host`, `--port` and `--workers`, which take precedence over both.
Times are seconds, sizes are tokens. `MEMSERVER_NAME_FILE` names a file with the value of `MEMSERVER_NAME`, of every setting: for
secrets that an orchestrator mounts. An empty file sets nothing. A wrong value stops the command with the variable's name.

An agent can have its own model, window, output, steps and time zone: see [`options`](api.md#agents).
"""

GROUPS = {
    "server": "Server",
    "database": "Database",
    "llm": "Model",
    "embedding": "Embedder",
    "tools": "Tools",
    "torch": "Installation",
    "limits": "Turns",
}
MEANINGS = {
    "host": "Address to listen on.",
    "port": "Port to listen on.",
    "workers": "Processes that serve.",
    "database_pool_size": "Most connections of one process.",
    "llm_model": "The model's name at the endpoint; unset: the first that the endpoint lists.",
    "llm_api_key": "Key for the endpoint.",
    "llm_max_output_tokens": "Kept free in the window for one step's output.",
    "embedding_model": "The embedding model's name at the endpoint; needed with its URL.",
    "embedding_api_key": "Key for the embedding endpoint.",
}
"""For the fields that have no text of their own, since their names say it to a reader of the code."""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """The whole page."""
    texts = field_texts()
    parts = [HEAD]
    for group, title in GROUPS.items():
        rows = [
            row(name, field, texts.get(name) or MEANINGS[name])
            for name, field in Settings.model_fields.items()
            if group_of(name) == group
        ]
        parts.append(
            f"## {title}\n\n| variable | type | default | meaning |\n|---|---|---|---|\n"
            + "\n".join(rows)
        )
    return "\n\n".join(part.strip() for part in parts) + "\n"


def field_texts() -> dict[str, str]:
    """The text below each field that has one."""
    [tree] = ast.parse(inspect.getsource(settings.Settings)).body
    assert isinstance(tree, ast.ClassDef)
    texts = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            texts[field.target.id] = " ".join(str(below.value.value).split())
    return texts


def group_of(name: str) -> str:
    """The group that a setting is listed in."""
    first = {"summary_model": "llm", "summary_method": "llm", "mcp_servers": "tools"}.get(
        name, name.partition("_")[0]
    )
    if first == "tool":
        return "tools"
    if first in GROUPS:
        return first
    return "limits" if first in {"max", "turn", "lease"} else "server"


def row(name: str, field: FieldInfo, meaning: str) -> str:
    """A setting's line of the table."""
    cells = [f"`MEMSERVER_{name.upper()}`", kind(field), default(name, field), meaning]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def kind(field: FieldInfo) -> str:
    """What a value must be, with its limits."""
    limits = []
    for constraint in field.metadata:
        for attribute, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤")):
            if (bound := getattr(constraint, attribute, None)) is not None:
                limits.append(f"{sign} {bound}")
    return ", ".join([type_name(field.annotation), *limits])


def type_name(annotation: object) -> str:
    """A type in words."""
    if typing.get_origin(annotation) is types.UnionType:
        [annotation] = [kind for kind in typing.get_args(annotation) if kind is not types.NoneType]
    if typing.get_origin(annotation) is typing.Literal:
        return " or ".join(f"`{choice}`" for choice in typing.get_args(annotation))
    if typing.get_origin(annotation) is dict:
        return "JSON object"
    if typing.get_origin(annotation) is list:
        return "JSON list"
    if typing.get_origin(annotation) is tuple:
        return f"{type_name(typing.get_args(annotation)[0])}, several by commas"
    names = {
        bool: "boolean",
        int: "integer",
        float: "number",
        str: "text",
        Path: "path",
        SecretStr: "secret text",
        IPvAnyNetwork: "network",
    }
    return names[annotation]  # type: ignore[index]


def default(name: str, field: FieldInfo) -> str:
    """The default as a reader writes it."""
    if name == "home":
        return "the user's data directory for `memserver` (on Linux `~/.local/share/memserver`)"
    value = field.get_default(call_default_factory=True)
    if value is None or value == ():
        return "unset"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


if __name__ == "__main__":
    main()
