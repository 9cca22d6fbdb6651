"""Counting tokens: exactly from a tokenizer file or the endpoint, or an upper bound from bytes.

Owns the counts of texts. Leaves to the model what its chat template adds around a message.
"""

import asyncio
import hashlib
import json
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer
from typing_extensions import override

from memserver.errors import ModelError, ModelRejected, ModelUnavailable, SetupError
from memserver.llm.lossless import clean_text
from memserver.llm.wire import joined
from memserver.openai_http.circuit import Circuit
from memserver.openai_http.client import Endpoint, EndpointClient

logger = logging.getLogger(__name__)

_LONGEST = 16_000_000
"""Bytes of /tokenize's answer, which lists all tokens; numbers alone are read quickly."""
_TOKENIZER_HINT = (
    "MEMSERVER_LLM_TOKENIZER or MEMSERVER_EMBEDDING_TOKENIZER names the file, or its folder."
)
_INLINE_CHARACTERS = 20_000
"""Up to here tokenizing takes a few milliseconds; more goes to a thread."""


BOUND_SCALE = 0.4
"""Tokens for each byte, until the endpoint's usage shows better: English has .25, Chinese .3 to .6."""


class TokenCounter(Protocol):
    """Counts the tokens of texts, special tokens around them not included."""

    @property
    def expected_scale(self) -> float:
        """The model's tokens for each one that was counted: less than 1 where counts are a loose bound."""
        return 1.0

    async def count(self, texts: Sequence[str]) -> list[int]:
        """Count each text: never fewer tokens than the model will see."""
        ...

    async def aclose(self) -> None:
        """Give back connections."""
        ...


class ByteBound(TokenCounter):
    """The number of UTF-8 bytes.

    A true upper bound for byte-level BPE (GPT, Llama 3, Qwen, SmolLM), whose every token is at least
    one byte. It is a loose one: English has about four bytes in a token. A tokenizer that puts a space
    in front of a text may need one more; `message_overhead` covers that.
    """

    @property
    @override
    def expected_scale(self) -> float:
        return BOUND_SCALE

    @override
    async def count(self, texts: Sequence[str]) -> list[int]:
        return [len(clean_text(text).encode()) for text in texts]

    @override
    async def aclose(self) -> None:
        return None


class TokenizerFile(TokenCounter):
    """Counts with the tokenizer.json of a model's folder, read at the first count."""

    def __init__(self, path: Path) -> None:
        self._path = path / "tokenizer.json" if path.is_dir() else path
        self._tokenizer: Tokenizer | None = None

    @override
    async def count(self, texts: Sequence[str]) -> list[int]:
        """Count each text.

        Raises:
            SetupError: there is no such file, or it is no tokenizer.
        """
        tokenizer = self._tokenizer
        if tokenizer is None:
            tokenizer = await asyncio.to_thread(self._load)
        readable = [clean_text(text) for text in texts]
        if sum(map(len, readable)) <= _INLINE_CHARACTERS:
            return _counts(tokenizer, readable)
        return await asyncio.to_thread(_counts, tokenizer, readable)

    @override
    async def aclose(self) -> None:
        return None

    def _load(self) -> Tokenizer:
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            # Whoever posts a message may read this, so it says nothing of where the file is.
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise SetupError(
                f"The tokenizer {self._path.name} can't be read: {why}.", hint=_TOKENIZER_HINT
            ) from error
        try:
            tokenizer = Tokenizer.from_str(text)
        except Exception as error:
            raise SetupError(
                f"{self._path.name} is no tokenizer.json: {error}", hint=_TOKENIZER_HINT
            ) from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        return tokenizer


class EndpointTokenizer(TokenCounter):
    """Counts by asking vLLM's POST /tokenize, which stands beside /v1; texts go concurrently."""

    def __init__(
        self,
        endpoint: Endpoint,
        model: str | None,
        *,
        at_once: int = 8,
        circuit: Circuit | None = None,
    ) -> None:
        """Make it; nothing is asked yet.

        Args:
            endpoint: the model's.
            model: what the endpoint calls the model; None lets it choose.
            at_once: requests that run at the same time, at most.
            circuit: the endpoint's; while it is open nothing is asked. It learns nothing from counts:
                not every endpoint that answers has a /tokenize that works.
        """
        self._client = EndpointClient(
            replace(endpoint, beside_v1=True, most_bytes=_LONGEST, most_values=_LONGEST)
        )
        self._model = model
        self._turn = asyncio.Semaphore(at_once)
        self._circuit = circuit or Circuit()

    @override
    async def count(self, texts: Sequence[str]) -> list[int]:
        """Count each text.

        Raises:
            ModelError: the endpoint can't be asked.
        """
        return list(await asyncio.gather(*(self._ask(clean_text(text)) for text in texts)))

    @override
    async def aclose(self) -> None:
        await self._client.aclose()

    async def _ask(self, text: str) -> int:
        if not text:
            return 0
        body = {"prompt": text, "add_special_tokens": False}
        if self._model is not None:
            body["model"] = self._model
        async with self._turn:
            if self._circuit.is_open:
                raise self._circuit.refusal()
            answer = await self._client.post(
                "/tokenize", joined([json.dumps(body, ensure_ascii=False)])
            )
        count = answer.get("count")
        if not isinstance(count, int):
            raise ModelUnavailable("The endpoint's /tokenize gave no count.")
        return count


class Remembered(TokenCounter):
    """Another counter's counts of the texts used last: a prompt's head is the same turn after turn."""

    def __init__(self, inner: TokenCounter, *, texts: int = 4096) -> None:
        """Make it.

        Args:
            inner: counts what is not known yet; closed with this one.
            texts: how many are remembered.
        """
        self._inner = inner
        self._most = texts
        self._known: OrderedDict[bytes, int] = OrderedDict()

    @override
    async def count(self, texts: Sequence[str]) -> list[int]:
        """Count each text. Raises what the inner counter raises."""
        keys = [_key(text) for text in texts]
        found = {key: self._known[key] for key in keys if key in self._known}
        unknown = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        counts = await self._inner.count(list(unknown.values())) if unknown else []
        found |= dict(zip(unknown, counts, strict=True))
        self._known |= found  # again: another count may have dropped some meanwhile
        for key in keys:
            self._known.move_to_end(key)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return [found[key] for key in keys]

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()


class EndpointOrBound(TokenCounter):
    """Asks the endpoint, and takes the bound in bytes where that can't be: it never fails.

    So a message can be counted and stored while the model is down.
    """

    def __init__(
        self, endpoint: Endpoint, model: str | None, circuit: Circuit | None = None
    ) -> None:
        """Make it. `model`: what the endpoint calls the model; None lets it choose."""
        quick = replace(endpoint, timeout=min(5, endpoint.timeout), max_retries=0)
        self._asked = Remembered(EndpointTokenizer(quick, model, circuit=circuit))
        self._bound = ByteBound()
        self._has_tokenize = True

    @property
    @override
    def expected_scale(self) -> float:
        return (self._asked if self._has_tokenize else self._bound).expected_scale

    @override
    async def count(self, texts: Sequence[str]) -> list[int]:
        if self._has_tokenize:
            try:
                return await self._asked.count(texts)
            except ModelRejected:
                self._has_tokenize = False
                logger.info("The endpoint has no /tokenize: tokens are bounded by bytes.")
            except ModelError as error:
                logger.info("Tokens are bounded by bytes for now: %s", error.message)
        return await self._bound.count(texts)

    @override
    async def aclose(self) -> None:
        await self._asked.aclose()


def _counts(tokenizer: Tokenizer, texts: list[str]) -> list[int]:
    return [len(found.ids) for found in tokenizer.encode_batch(texts, add_special_tokens=False)]


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).digest()
