"""Per-turn advantages: what each message of an agent is worth by a critic (SWEET-RL, equation 2).

The difference of two models' log-probabilities of a turn's tokens, as mean or sum; with a regression head
the head's value. Two texts that differ only in white space around them have the same one.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pstdev, quantiles
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoTokenizer
from trl.trainer.utils import add_fused_lm_head, use_adapter

from memserver_evals.runs.run_folder import AppendOnly
from sweet_rl import adapters, losses
from sweet_rl.agent_turns import AgentTurns, Tokenizer, cleaned, rendered
from sweet_rl.pairs import with_hidden
from sweet_rl.plans import ScorePlan
from sweet_rl.progress import Progress, unseen
from sweet_rl.rows import Batch, Row, batch_of, batches, forked, placed, seen
from sweet_rl.trajectories import Candidates, ChatMessage, Ranked, Trajectory, read_file

Advantages = tuple[float, ...]
AT_ONCE = 64
"""States that are scored and written at once."""


@dataclass(frozen=True, slots=True)
class ScoredChat:
    messages: Sequence[ChatMessage]  # the whole chat; or, with `texts`, what comes before them
    hidden: str  # the reference code
    first: int = 0  # how many messages of the agent come before those to be scored
    # several next messages of the agent, which are scored in place of `messages`
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadedCritic:
    """A loaded critic with its reference.

    `shares` says whether the candidates of a state go through the model together (see `losses.can_fork`).
    """

    plan: ScorePlan
    model: adapters.Model
    tokenizer: Tokenizer
    turns: AgentTurns
    shares: bool = False
    before: adapters.Model | None = None  # the reference, where all weights were trained

    @classmethod
    def load(cls, plan: ScorePlan) -> "LoadedCritic":
        model, before = _whole(plan) if adapters.is_whole(plan.critic) else (_adapted(plan), None)
        tokenizer = AutoTokenizer.from_pretrained(plan.base)
        turns, shares = AgentTurns.of(tokenizer), losses.can_fork(model.eval(), tokenizer)
        return cls(plan, model, tokenizer, turns, shares, before)

    def score(self, chats: Sequence[ScoredChat], progress: Progress = unseen) -> list[Advantages]:
        if losses.has_head(self.plan.critic):
            return self._of_turns(chats, self._values, progress, hidden=self.plan.hidden)
        steps = 2 * len(chats)
        own = self._of_turns(
            chats, self._log_probs, lambda done, _: progress(done, steps), hidden=self.plan.hidden
        )
        other, name = self, "ref" if self.plan.reference is not None else None
        if self.before is not None:
            other = replace(self, model=self.before)
        with nullcontext() if self.before is not None else use_adapter(self.model, name):
            before = other._of_turns(
                chats,
                other._log_probs,
                lambda done, _: progress(len(chats) + done, steps),
                hidden=self.plan.hidden and self.plan.reference_hidden,
            )
        return [
            tuple(a - b for a, b in zip(one, other, strict=True))
            for one, other in zip(own, before, strict=True)
        ]

    def _of_turns(
        self,
        chats: Sequence[ScoredChat],
        of_batch: Callable[[Batch], torch.Tensor],
        progress: Progress,
        *,
        hidden: bool,
    ) -> list[Advantages]:
        owners = [
            (place, row) for place, chat in enumerate(chats) for row in self._rows(chat, hidden)
        ]
        found: dict[int, Advantages] = {}
        for batch in batches([len(row.ids) for _, row in owners], self.plan.batch_tokens):
            rows = [owners[number][1] for number in batch]
            made = placed(batch_of(rows, self.tokenizer.pad_token_id), self.model)
            with torch.inference_mode():
                scored = of_batch(made).tolist()
            for number, row, values in zip(batch, rows, scored, strict=True):
                found[number] = tuple(values[: row.turns])
            progress(len(found) * len(chats) // len(owners), len(chats))
        merged: list[Advantages] = [()] * len(chats)
        for number, (place, _) in enumerate(owners):
            merged[place] += found[number]
        return merged

    def _rows(self, chat: ScoredChat, hidden: bool) -> list[Row]:
        start = with_hidden(chat.messages, chat.hidden) if hidden else chat.messages
        if not chat.texts:
            ids = rendered(self.tokenizer, cleaned(start))
            return [self._row(ids, chat.first)]
        said: list[ChatMessage] = [{"role": "assistant", "content": text} for text in chat.texts]
        if not self.shares:
            whole = [rendered(self.tokenizer, cleaned([*start, one])) for one in said]
            return [self._row(ids, chat.first) for ids in whole]
        before = rendered(self.tokenizer, cleaned(start), ready=True)
        texts = [message["content"] for message in cleaned(said)]
        tokens = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return [forked(before, [[*ids, self.turns.end] for ids in tokens])]

    def _row(self, ids: list[int], first: int) -> Row:
        scored = [0] * len(ids)
        for start, stop in self.turns.spans(ids)[first:]:
            scored[start:stop] = [1] * (stop - start)
        return Row(ids, scored)

    def _log_probs(self, batch: Batch) -> torch.Tensor:
        turn = losses.numbered(batch["completion_mask"])
        each = torch.nn.functional.one_hot(turn)[..., 1:].float()
        sums = torch.einsum("bl,blt->bt", losses.log_probs(self.model, batch).float(), each)
        return sums / each.sum(1).clamp(min=1) if self.plan.normalised else sums

    def _values(self, batch: Batch) -> torch.Tensor:
        return losses.turn_means(
            losses.token_values(self.model, seen(batch)), losses.numbered(batch["completion_mask"])
        )


def _adapted(plan: ScorePlan) -> adapters.Model:
    """A critic's adapter on the base, and "ref" beside it, if there is one."""
    base = adapters.load_base(plan.base, plan.precision)
    add_fused_lm_head(base)
    model = PeftModel.from_pretrained(base, str(adapters.checked(plan.critic)))
    if losses.has_head(plan.critic):
        losses.add_head(model)
        losses.load_head(model, plan.critic)
    elif plan.reference is not None:
        model.load_adapter(str(adapters.checked(plan.reference)), "ref")
    return model


def _whole(plan: ScorePlan) -> tuple[adapters.Model, adapters.Model]:
    """A critic of which all weights were trained, and what it was before."""
    base = adapters.load_base(plan.base, "float32")
    before, model = adapters.whole(base, plan.reference), adapters.load_base(plan.critic, "float32")
    for each in (before, model):
        add_fused_lm_head(each.eval())
    return model, before


def score_turns(
    plan: ScorePlan, records: Sequence[Trajectory | Candidates], progress: Progress = unseen
) -> list[Advantages]:
    return scores_of(LoadedCritic.load(plan), records, progress)


def scores_of(
    critic: LoadedCritic, records: Sequence[Trajectory | Candidates], progress: Progress = unseen
) -> list[Advantages]:
    return critic.score([_chat(record) for record in records], progress)


def _chat(record: Trajectory | Candidates) -> ScoredChat:
    if isinstance(record, Trajectory):
        return ScoredChat(record.messages, record.hidden)
    return ScoredChat(record.messages, record.hidden, _said(record.messages), record.candidates)


def _said(messages: Sequence[ChatMessage]) -> int:
    return sum(message["role"] == "assistant" for message in messages)


def rank(
    plan: ScorePlan,
    candidates: Path,
    ranked: Path,
    progress: Progress = unseen,
    *,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Append a Ranked record for each Candidates record that has none yet.

    Returns:
        `states`, `finished` (false where `seconds` were over first), `spread` (the mean standard deviation
        of a state's advantages), `nats` and `nats_99` (the mean size of an advantage, and what 99 of 100 are below)
        and `distinct` (the mean share of different texts among a state's candidates).
    """
    start = time.monotonic()
    states = read_file(candidates, Candidates)
    ranked.parent.mkdir(parents=True, exist_ok=True)
    AppendOnly(ranked).close()  # cuts off half a line
    old = read_file(ranked, Ranked) if ranked.stat().st_size else []
    done = {record.key: record for record in old}
    left = [state for state in states if state.key not in done]
    critic = LoadedCritic.load(plan) if left else None
    progress(len(done), len(states))
    while left and critic is not None:
        if seconds is not None and time.monotonic() - start >= seconds:
            break
        some, left = left[:AT_ONCE], left[AT_ONCE:]
        new = [
            Ranked(**state.model_dump(), advantages=advantages)
            for state, advantages in zip(some, scores_of(critic, some), strict=True)
        ]
        _append(ranked, new)
        done |= {record.key: record for record in new}
        progress(len(done), len(states))
    return {
        "states": len(done),
        "finished": not left,
        "seconds": round(time.monotonic() - start, 1),
        **_spread(list(done.values())),
    }


def _append(path: Path, records: list[Ranked]) -> None:
    with path.open("ab") as file:
        file.write("".join(f"{record.model_dump_json()}\n" for record in records).encode())
        file.flush()
        os.fsync(file.fileno())


def _spread(records: list[Ranked]) -> dict[str, float]:
    if not records:
        return {"spread": 0.0, "nats": 0.0, "nats_99": 0.0, "distinct": 0.0}
    sizes = [abs(each) for record in records for each in record.advantages]
    return {
        "nats": fmean(sizes),
        "nats_99": quantiles(sizes, n=100)[-1],
        "spread": fmean(pstdev(record.advantages) for record in records),
        "distinct": fmean(
            len(set(record.candidates)) / len(record.candidates) for record in records
        ),
    }
