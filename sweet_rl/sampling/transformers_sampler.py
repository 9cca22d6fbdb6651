"""Samples in this process, by transformers: what is asked for at one time goes through the model together.

Each text has a random generator of its own, so what it becomes does not depend on what is drawn beside it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, LogitsProcessor, LogitsProcessorList

from memserver.errors import ContextOverflow
from sweet_rl.adapters import is_whole
from sweet_rl.sampling.samplers import Sampled, Sampling
from sweet_rl.trajectories import Messages

MOST_AT_ONCE = 256
"""Texts in one batch."""


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    prompt: Sequence[int]
    count: int
    sampling: Sampling
    seed: int
    done: "asyncio.Future[list[Sampled]]"


class TransformersSampler:
    def __init__(
        self, base: Path, adapter: Path | None = None, *, most_at_once: int = MOST_AT_ONCE
    ) -> None:
        device, dtype = (
            ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
        )
        self._tokenizer = AutoTokenizer.from_pretrained(base)
        if adapter is not None and is_whole(adapter):
            base, adapter, dtype = adapter, None, torch.float32
        model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=dtype)
        if adapter is not None:
            model = PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
        self._model = model.to(device).eval()
        self._ends = _ends(self._tokenizer, self._model)
        self._window = int(self._model.config.max_position_embeddings)
        self._most = most_at_once
        self._waiting: list[_Request] = []
        self._worker: asyncio.Task[None] | None = None

    async def sample(
        self, chat: Messages, count: int, sampling: Sampling, seed: int
    ) -> list[Sampled]:
        text = self._tokenizer.apply_chat_template(
            list(chat), tokenize=False, add_generation_prompt=True
        )
        prompt = self._tokenizer.encode(text, add_special_tokens=False)
        if len(prompt) + sampling.max_tokens > self._window:
            raise ContextOverflow(
                f"The model's window is {self._window} tokens; the prompt has {len(prompt)} "
                f"and the answer may have {sampling.max_tokens}."
            )
        done: asyncio.Future[list[Sampled]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Request(prompt, count, sampling, seed, done))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await done

    async def aclose(self) -> None:
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        self._model = None
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    async def _work(self) -> None:
        await asyncio.sleep(0)  # others that are about to ask come along
        while self._waiting:
            batch = self._next_batch()
            running = asyncio.ensure_future(asyncio.to_thread(self._generate, batch))
            try:
                await asyncio.wait([running])
            finally:
                running.cancel()  # changes nothing where it has ended
            error = running.exception()
            for number, request in enumerate(batch):
                if request.done.done():
                    continue
                if error is not None:
                    request.done.set_exception(error)
                else:
                    request.done.set_result(running.result()[number])

    def _next_batch(self) -> list[_Request]:
        """Requests that are drawn in the same way, as many as fit; one that is too large goes alone."""
        first = self._waiting[0]
        batch, texts = [first], first.count
        for request in self._waiting[1:]:
            if request.sampling == first.sampling and texts + request.count <= self._most:
                batch.append(request)
                texts += request.count
        taken = set(batch)
        self._waiting = [request for request in self._waiting if request not in taken]
        return batch

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _generate(self, batch: Sequence[_Request]) -> list[list[Sampled]]:
        sampling = batch[0].sampling
        repeats = [request.count if sampling.temperature else 1 for request in batch]
        rows = [
            (request.prompt, request.seed + number)
            for request, count in zip(batch, repeats, strict=True)
            for number in range(count)
        ]
        found: list[Sampled] = []
        for start in range(0, len(rows), self._most):
            found += self._rows(rows[start : start + self._most], sampling)
        texts = iter(found)
        drawn = [[next(texts) for _ in range(count)] for count in repeats]
        return [
            each * (request.count // len(each)) for request, each in zip(batch, drawn, strict=True)
        ]

    def _rows(self, rows: Sequence[tuple[Sequence[int], int]], sampling: Sampling) -> list[Sampled]:
        longest = max(len(prompt) for prompt, _ in rows)
        pad = self._tokenizer.pad_token_id or 0
        ids = [[pad] * (longest - len(prompt)) + list(prompt) for prompt, _ in rows]
        mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt, _ in rows]
        device = self._model.device
        drawing = _Drawing([seed for _, seed in rows], sampling.temperature)
        sequences = self._model.generate(
            input_ids=torch.tensor(ids, device=device),
            attention_mask=torch.tensor(mask, device=device),
            max_new_tokens=sampling.max_tokens,
            do_sample=False,
            eos_token_id=sorted(self._ends),
            pad_token_id=pad,
            logits_processor=LogitsProcessorList([drawing]),
        )
        return [
            self._read(new, len(prompt))
            for new, (prompt, _) in zip(sequences[:, longest:].tolist(), rows, strict=True)
        ]

    def _read(self, tokens: list[int], read: int) -> Sampled:
        """A row up to its end; after that it is padded."""
        length = next(
            (place + 1 for place, token in enumerate(tokens) if token in self._ends), len(tokens)
        )
        text = self._tokenizer.decode(tokens[:length], skip_special_tokens=True)
        return Sampled(text, length, read)


class _Drawing(LogitsProcessor):  # type: ignore[misc]
    """Draws by the Gumbel trick, each row by its own generator."""

    def __init__(self, seeds: Sequence[int], temperature: float) -> None:
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._temperature = temperature

    def __call__(self, input_ids: Any, scores: Any) -> Any:  # noqa: ANN401, ARG002 - tensors
        if not self._temperature:
            return scores
        noise = torch.stack(
            [
                torch.empty(scores.shape[-1]).exponential_(generator=generator)
                for generator in self._generators
            ]
        )
        return scores.float() / self._temperature - noise.to(scores.device).log()


def _ends(tokenizer: Any, model: Any) -> set[int]:  # noqa: ANN401 - transformers has no types
    named = model.generation_config.eos_token_id
    several = set(named) if isinstance(named, list) else {named}
    return {end for end in several | {tokenizer.eos_token_id} if end is not None}
