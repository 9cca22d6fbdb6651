"""The steps of a training on chains, in plain PyTorch: times itself, saves as it goes, resumes where it broke off.

On several GPUs, by torchrun, each process takes its share of every batch.

A chain of two thousand tokens has one turn of fifty to learn. So logits are computed for those tokens alone,
which takes half of the time and a tenth of the memory.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from peft import get_peft_model_state_dict, set_peft_model_state_dict
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from typing_extensions import override

from sweet_rl.merged import MergedAdapter
from sweet_rl.progress import show_progress
from sweet_rl.warm_start.chains import IGNORED

Model = Any
Row = dict[str, list[int]]
Learnt = TypeVar("Learnt")
_Taken = TypeVar("_Taken", contravariant=True)
TOKENS_AT_ONCE = 30_000
"""Of the parts of a step that are computed together; on one GPU of 80 GB or more."""
UNTIMED = 10
"""Steps that say nothing of the next ones' time: a GPU warms up in them."""
TIMED_AT = (25, 60, 150, 400, 800)
"""Steps after which the rest is fitted into the time again."""
SAVED_EVERY = 100
WARM_UP = 30
LEAST_RATE = 0.05
"""Of the highest, at the end."""


@dataclass
class Fit:
    steps: int  # in all
    done: int = 0  # of them
    # nats per token, each with its step
    losses: list[tuple[int, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Schedule:
    steps: int  # at most
    batch: int  # chains in a step
    rate: float  # the highest learning rate; a cosine takes it down after a short warm-up
    seconds: float | None = None  # that it may take; None: any
    seed: int = 1  # of the order


class Learning(Protocol[_Taken]):
    def size(self, row: _Taken, /) -> int: ...

    def step(self, model: Model, batch: Sequence[_Taken], /) -> float: ...


class Chains(Learning[Row]):
    @override
    def size(self, row: Row, /) -> int:
        return len(row["input_ids"])

    @override
    def step(self, model: Model, batch: Sequence[Row], /) -> float:
        """Add up the gradients of this process's share of a batch, part by part; returns the mean loss of its tokens."""
        learnt = sum(label != IGNORED for row in batch for label in row["labels"])
        base = model.get_base_model()
        device = base.device
        total = 0.0
        share = batch[dist.get_rank() :: dist.get_world_size()] if dist.is_initialized() else batch
        for part in _parts(share):
            ids, labels = padded(part, device)
            # no mask: the padding comes last, where no token of a causal model sees it
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
                hidden = base.model(input_ids=ids, use_cache=False).last_hidden_state
                wanted = labels[:, 1:] != IGNORED
                logits = base.lm_head(hidden[:, :-1][wanted])
            lost = cross_entropy(logits.float(), labels[:, 1:][wanted], reduction="sum")
            loss = lost / max(1, learnt)
            loss.backward()
            total += loss.item()
        return total


CHAINS = Chains()


def padded(rows: Sequence[Row], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The ids and labels of rows, as long as the longest one."""
    ids, labels = (
        pad_sequence([torch.tensor(row[name]) for row in rows], True, padding).to(device)
        for name, padding in (("input_ids", 0), ("labels", IGNORED))
    )
    return ids, labels


def fit(
    model: Model,
    rows: Sequence[Learnt],
    file: Path,
    schedule: Schedule,
    learning: Learning[Learnt] = CHAINS,  # type: ignore[assignment]
) -> Fit:
    parameters = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(
        parameters, lr=schedule.rate, betas=(0.9, 0.95), weight_decay=0.01
    )
    state = _resume(model, optimizer, file) or Fit(schedule.steps)
    clock, merged = _Clock(schedule, state.done), MergedAdapter(model)
    order = batches(rows, schedule.batch, schedule.seed, learning)
    for _ in range(state.done):
        next(order)
    model.train()
    with show_progress("steps") as progress:
        while state.done < state.steps:
            for group in optimizer.param_groups:
                group["lr"] = schedule.rate * _share(state.done, state.steps)
            with merged.step():
                loss = learning.step(model, next(order))
            _add_up(parameters)
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            state.done += 1
            progress(state.done, state.steps)
            if state.done % 10 == 0 or state.done == state.steps:
                state.losses.append((state.done, round(loss, 4)))
            clock.refit(state)
            if state.done % SAVED_EVERY == 0 or state.done == state.steps:
                _save(model, optimizer, state, file)
    return state


class _Clock:
    def __init__(self, schedule: Schedule, done: int) -> None:
        self._schedule = schedule
        self._start = self._last = time.monotonic()
        self._began = self._timed = done

    def refit(self, state: Fit) -> None:
        seconds, done, now = self._schedule.seconds, state.done - self._began, time.monotonic()
        if done == UNTIMED:
            self._last, self._timed = now, state.done
        if seconds is None or done not in TIMED_AT:
            return
        each, left = (now - self._last) / (state.done - self._timed), seconds - (now - self._start)
        self._last, self._timed = now, state.done
        wanted = state.done + max(0, int(left / each))
        state.steps = _of_the_first(min(self._schedule.steps, wanted))


def batches(
    rows: Sequence[Learnt],
    batch: int,
    seed: int,
    learning: Learning[Learnt] = CHAINS,  # type: ignore[assignment]
) -> Iterator[list[Learnt]]:
    """The rows again and again, in another order each time; those of a batch are about equally long."""
    for epoch in range(10**9):
        random = Random(f"{seed} {epoch}")
        places = list(range(len(rows)))
        random.shuffle(places)
        found: list[list[Learnt]] = []
        for start in range(0, len(places), batch * 20):
            near = sorted(
                places[start : start + batch * 20], key=lambda at: learning.size(rows[at])
            )
            found += [
                [rows[at] for at in near[at : at + batch]] for at in range(0, len(near), batch)
            ]
        random.shuffle(found)
        yield from found


def _parts(batch: Sequence[Row]) -> Iterator[list[Row]]:
    part: list[Row] = []
    for row in sorted(batch, key=lambda each: len(each["input_ids"])):
        if part and (len(part) + 1) * len(row["input_ids"]) > TOKENS_AT_ONCE:
            yield part
            part = []
        part.append(row)
    if part:
        yield part


def _share(step: int, steps: int) -> float:
    warm = min(1.0, (step + 1) / min(WARM_UP, max(1, steps // 5)))
    return warm * (LEAST_RATE + (1 - LEAST_RATE) * 0.5 * (1 + math.cos(math.pi * step / steps)))


def _add_up(parameters: Sequence[torch.nn.Parameter]) -> None:
    """Make the gradients those of all processes together: each has had its share of the batch."""
    if dist.is_initialized():
        for each in parameters:
            if each.grad is None:
                each.grad = torch.zeros_like(each)
            dist.all_reduce(each.grad)


def _of_the_first(number: int) -> int:
    if not dist.is_initialized():
        return number
    found = [number]
    dist.broadcast_object_list(found)
    return found[0]


def join() -> None:
    """Join the other processes, if torchrun has started several."""
    if dist.is_torchelastic_launched():
        dist.init_process_group()
        if torch.cuda.is_available():
            torch.cuda.set_device(dist.get_node_local_rank())


def is_first() -> bool:
    return not dist.is_initialized() or dist.get_rank() == 0


def _save(model: Model, optimizer: torch.optim.Optimizer, state: Fit, file: Path) -> None:
    if not is_first():
        return
    part = file.with_suffix(".part")
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(
        {
            "adapter": get_peft_model_state_dict(model),
            "optimizer": optimizer.state_dict(),
            "fit": (state.steps, state.done, state.losses),
        },
        part,
    )
    part.replace(file)


def _resume(model: Model, optimizer: torch.optim.Optimizer, file: Path) -> Fit | None:
    if not file.is_file():
        return None
    saved = torch.load(file, map_location="cpu", weights_only=True)
    set_peft_model_state_dict(model, saved["adapter"])
    optimizer.load_state_dict(saved["optimizer"])
    return Fit(*saved["fit"])
