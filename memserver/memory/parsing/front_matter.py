"""What stands before a Markdown text and is about it: YAML between lines of dashes, or TOML between pluses."""

import json
import re
import tomllib
from typing import Any

import yaml

from memserver.memory.parsing.base import Parsed
from memserver.text import MOST_METADATA, checked_json, is_within

_YAML = re.compile(r"\s*---[ \t]*\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_TOML = re.compile(r"\s*\+\+\+[ \t]*\n(.*?\n)\+\+\+[ \t]*(?:\n|\Z)", re.DOTALL)
_MOST_TAGS = 100
_MOST = MOST_METADATA // 2  # characters; the sender's have room beside them


def split_front_matter(text: str) -> tuple[str, Parsed, list[str]]:
    """The text without its front matter; what this says, as metadata and tags; and why it can't be read."""
    found = _YAML.match(text) or _TOML.match(text)
    if found is None:
        return text, Parsed(""), []
    try:
        is_yaml = found.re is _YAML
        value = yaml.safe_load(found[1]) if is_yaml else tomllib.loads(found[1])
        if not isinstance(value, dict):  # a text between two rules
            return text, Parsed(""), []
        if not is_within(value, _MOST):
            raise ValueError(f"it has more than {_MOST} characters")
        metadata = checked_json(json.loads(json.dumps(value, default=str)))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        return text, Parsed(""), [f"The front matter can't be read, and stays text: {reason}."]
    tags = _tags(metadata.get("tags"))
    return text[found.end() :].lstrip("\n"), Parsed("", metadata=metadata, tags=tags), []


def _tags(value: Any) -> list[str]:  # noqa: ANN401 - any JSON
    tags = value.split(",") if isinstance(value, str) else value
    if not isinstance(tags, list):
        return []
    return [tag.strip()[:200] for tag in tags if isinstance(tag, str) and tag.strip()][:_MOST_TAGS]
