"""LoRA adapters of a vLLM endpoint: which there are, loading one, unloading one.

Each version of an adapter has a name of its own, since vLLM serves stale prefix cache under a name that is loaded again
with other weights (vllm-project/vllm#42125).
"""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from memserver.errors import InvalidInput, MemserverError, ModelError, NotFound, SetupError
from memserver.llm.model_info import parent_of, window_of
from memserver.messages import JsonObject, JsonValue
from memserver.openai_http.endpoint import Endpoint
from memserver.openai_http.errors import refusal_of
from memserver.openai_http.fleet_client import connect
from memserver.openai_http.streams import json_bytes

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_DIGITS = 8
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HOW = (
    "Start vLLM with the variable VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and with --enable-lora "
    "--max-lora-rank 16 (or what your adapters need). The local engine of `memserver serve` takes them with "
    "MEMSERVER_LOCAL_ADAPTERS=true."
)
_NO_ROUTE = frozenset({403, 404, 405, 501})
_ABOUT_THE_ADAPTER = re.compile(r"adapter|lora_name", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Served:
    """One model or adapter that an endpoint lists; absent parts it doesn't name."""

    name: str
    kind: Literal["model", "adapter"]
    base: str | None
    window: int | None
    path: str | None


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """An adapter as PEFT saves it: the model that it was trained on, its rank, a hash of its content."""

    base: str
    rank: int
    digest: str


class Adapters:
    def __init__(self, endpoint: Endpoint) -> None:
        self._client = connect(replace(endpoint, max_retries=0))

    async def listed(self) -> list[Served]:
        """What the endpoint lists, in its order. Raises ModelError."""
        cards = await self._client.check() or []
        return [_read_card(card, cards) for card in cards]

    async def load(self, name: str, path: str) -> bool:
        """Have the endpoint load an adapter from a folder, as its machine sees it; false where it was there under this name.

        Raises:
            SetupError: the endpoint can't load adapters while it runs.
            InvalidInput: it refused this one; the message says why.
            ModelError: it can't be reached.
        """
        if any(name == served.name for served in await self.listed()):
            return False
        try:
            await self._ask("load", {"lora_name": name, "lora_path": path})
        except InvalidInput as error:
            if "already been loaded" in error.message:  # by somebody else, meanwhile
                return False
            raise
        return True

    async def unload(self, name: str) -> None:
        """Have the endpoint forget an adapter.

        Raises:
            NotFound: it has no adapter of this name.
            SetupError: the endpoint can't unload adapters while it runs.
            ModelError: it can't be reached.
        """
        adapters = [served.name for served in await self.listed() if served.kind == "adapter"]
        if name not in adapters:
            raise NotFound(
                f"The endpoint has no adapter {name}.",
                hint=f"It has: {', '.join(adapters) or 'none'}.",
            )
        await self._ask("unload", {"lora_name": name})

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _ask(self, what: Literal["load", "unload"], body: JsonObject) -> None:
        try:
            await self._client.command(f"/{what}_lora_adapter", json_bytes(body))
        except ModelError as error:
            raise _explain(what, error) from error


def find_adapter(path: str) -> AdapterFolder | None:
    """Read an adapter's folder, if this machine sees it; None where it doesn't.

    Raises:
        InvalidInput: there is something, but no LoRA adapter.
    """
    if not os.path.lexists(path):
        return None
    try:
        config = json.loads(Path(path, CONFIG).read_text(encoding="utf-8"))
        content = Path(path, CONFIG).read_bytes()
        with Path(path, WEIGHTS).open("rb") as weights:
            digest = hashlib.file_digest(weights, "sha256")
    except OSError as error:
        raise InvalidInput(
            f"{path} is no adapter's folder: {error.strerror}: {error.filename}",
            hint=f"It must hold {CONFIG} and {WEIGHTS}, as PEFT's save_pretrained writes them.",
        ) from error
    except ValueError as error:
        raise InvalidInput(f"{Path(path, CONFIG)} is no JSON: {error}") from error
    digest.update(content)
    base, rank = _check_config(config, path)
    return AdapterFolder(base, rank, digest.hexdigest())


def versioned_name(name: str, folder: AdapterFolder | None, version: str | None) -> str:
    """The name of one version of an adapter: `version`, or else the beginning of its content's hash.

    Raises:
        InvalidInput: the name can't be one, or no version is known.
    """
    if version is None:
        if folder is None:
            raise InvalidInput(
                "The adapter's folder can't be read on this machine, so its version is not known.",
                hint="If only the endpoint's machine sees it, give each version a text of its own: "
                "--version TEXT.",
            )
        version = folder.digest[:_DIGITS]
    for part in (name, version):
        if not _NAME.fullmatch(part):
            raise InvalidInput(
                f"{part!r} can't be in an adapter's name.",
                hint="Take up to 100 letters, digits, dots, dashes and underscores.",
            )
    return f"{name}-{version}"


def trained_elsewhere(folder: AdapterFolder, served: Sequence[Served]) -> str:
    """A warning if no model that is served has the name of the one it was trained on; else nothing.

    The same model can have several names, so that is not an error.
    """
    models = [each for each in served if each.kind == "model"]
    names = {Path(name).name for each in models for name in (each.name, each.path or "")}
    if not models or Path(folder.base).name in names:
        return ""
    there = ", ".join(each.name for each in models)
    return (
        f"It was trained on {folder.base}; the endpoint has {there}. Check that this is the same."
    )


def _check_config(config: JsonValue, path: str) -> tuple[str, int]:
    fields = config if isinstance(config, dict) else {}
    kind, base, rank = (fields.get(key) for key in ("peft_type", "base_model_name_or_path", "r"))
    problem = None
    if kind != "LORA":
        problem = f"it is of the kind {kind!r}, not LORA"
    elif not isinstance(base, str) or not base:
        problem = "it names no base_model_name_or_path"
    elif isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        problem = f"its rank r is {rank!r}"
    else:
        return base, rank
    raise InvalidInput(
        f"{Path(path, CONFIG)} is not of a LoRA adapter: {problem}.",
        hint="vLLM takes LoRA adapters as PEFT's save_pretrained writes them.",
    )


def _read_card(card: JsonObject, cards: Sequence[JsonObject]) -> Served:
    name = str(card.get("id", ""))
    base = parent_of(card)
    path = card.get("root")
    return Served(
        name=name,
        kind="adapter" if base else "model",
        base=base,
        window=window_of(name, cards),
        path=path if isinstance(path, str) else None,
    )


def _explain(what: str, error: ModelError) -> MemserverError:
    """What a refusal of loading or unloading means; an endpoint that isn't reached stays that."""
    cause = refusal_of(error)
    if cause is None or cause.status in {None, 401, 408, 429}:
        return error
    about_it = _ABOUT_THE_ADAPTER.search(cause.words) is not None
    if "LoRA is not enabled" in cause.words or (cause.status in _NO_ROUTE and not about_it):
        return SetupError(f"The endpoint can't {what} adapters while it runs.", hint=_HOW)
    if cause.status in {502, 503, 504}:
        return error
    hint = "Start vLLM with a larger --max-lora-rank." if "max_lora_rank" in cause.words else ""
    return InvalidInput(
        f"The endpoint refused to {what} the adapter: {cause.words[:500]}", hint=hint
    )
