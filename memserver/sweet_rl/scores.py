"""Per-turn advantages: what each message of an agent is worth by a critic (SWEET-RL, equation 2).

The difference of two models' log-probabilities of a turn's tokens, as mean or sum; with a regression head
the head's value. Two texts that differ only in white space around them have the same one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer
from trl.trainer.utils import add_fused_lm_head, use_adapter

from memserver.prompts import Prompts
from memserver.sweet_rl import adapters
from memserver.sweet_rl.agent_turns import AgentTurns, Tokenizer, cleaned, rendered
from memserver.sweet_rl.hidden_information import with_hidden
from memserver.sweet_rl.losses import Batch, log_probs, numbered
from memserver.sweet_rl.plans import Progress, ScorePlan, unseen
from memserver.sweet_rl.regression_head import add_head, has_head, load_head, turn_values
from memserver.sweet_rl.trajectories import Candidates, ChatMessage, Pair, Trajectory

Advantages = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Chat:
    """Some messages, of which the agent's from one on are to be scored.

    Attributes:
        messages: the whole chat.
        hidden: the reference code.
        first: how many messages of the agent come before those to be scored.
    """

    messages: Sequence[ChatMessage]
    hidden: str
    first: int = 0


@dataclass(frozen=True, slots=True)
class Critic:
    """A loaded critic with its reference."""

    plan: ScorePlan
    model: adapters.Model
    tokenizer: Tokenizer
    turns: AgentTurns
    prompts: Prompts

    @classmethod
    def load(cls, plan: ScorePlan) -> "Critic":
        """Load what a plan names.

        Raises:
            InvalidInput: there is no such model or adapter.
        """
        base = adapters.load_base(plan.base, plan.precision)
        add_fused_lm_head(base)
        model = PeftModel.from_pretrained(base, str(adapters.checked(plan.critic)))
        if has_head(plan.critic):
            add_head(model)
            load_head(model, plan.critic)
        elif plan.reference is not None:
            model.load_adapter(str(adapters.checked(plan.reference)), "ref")
        tokenizer = AutoTokenizer.from_pretrained(plan.base)
        return cls(plan, model.eval(), tokenizer, AgentTurns.of(tokenizer), Prompts(plan.prompts))

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def score(self, chats: Sequence[Chat], progress: Progress = unseen) -> list[Advantages]:
        """The advantages of each chat's turns, from its `first` on."""
        if has_head(self.plan.critic):
            return self._sums(chats, self.plan.hidden, self._values, progress)
        steps = 2 * len(chats)
        own = self._sums(
            chats, self.plan.hidden, self._log_probs, lambda done, _: progress(done, steps)
        )
        reference = "ref" if self.plan.reference is not None else None
        with use_adapter(self.model, reference):
            before = self._sums(
                chats,
                self.plan.hidden and self.plan.reference_hidden,
                self._log_probs,
                lambda done, _: progress(len(chats) + done, steps),
            )
        return [
            tuple(a - b for a, b in zip(one, other, strict=True))
            for one, other in zip(own, before, strict=True)
        ]

    def _sums(
        self,
        chats: Sequence[Chat],
        hidden: bool,
        of_turns: Callable[[Batch], torch.Tensor],
        progress: Progress,
    ) -> list[Advantages]:
        """What `of_turns` says of each chat's turns, in batches of chats of about one length."""
        rows = [self._tokens(chat, hidden=hidden) for chat in chats]
        found: dict[int, Advantages] = {}
        for places in batches([len(row) for row in rows], self.plan.batch_tokens):
            values = of_turns(self._batch([rows[place] for place in places])).tolist()
            for place, row in zip(places, values, strict=True):
                turns = len(self.turns.spans(rows[place]))
                found[place] = tuple(row[chats[place].first : turns])
            progress(len(found), len(rows))
        return [found[place] for place in range(len(rows))]

    def _tokens(self, chat: Chat, *, hidden: bool) -> list[int]:
        messages = (
            with_hidden(chat.messages, chat.hidden, self.prompts) if hidden else chat.messages
        )
        return rendered(self.tokenizer, cleaned(messages))

    def _batch(self, rows: Sequence[list[int]]) -> Batch:
        def padded(values: Iterator[Sequence[int]], filler: int) -> torch.Tensor:
            tensors = [torch.tensor(each) for each in values]
            return pad_sequence(tensors, batch_first=True, padding_value=filler).to(
                self.model.device
            )

        return {
            "input_ids": padded(iter(rows), self.tokenizer.pad_token_id),
            "attention_mask": padded(([1] * len(row) for row in rows), 0),
            "completion_mask": padded((self.turns.mask(row) for row in rows), 0),
        }

    def _log_probs(self, batch: Batch) -> torch.Tensor:
        turn = numbered(batch["completion_mask"][:, 1:])
        each = torch.nn.functional.one_hot(turn)[..., 1:].float()
        sums = torch.einsum("bl,blt->bt", log_probs(self.model, batch).float(), each)
        return sums / each.sum(1).clamp(min=1) if self.plan.normalised else sums

    def _values(self, batch: Batch) -> torch.Tensor:
        seen = {name: batch[name] for name in ("input_ids", "attention_mask")}
        return turn_values(self.model, seen, numbered(batch["completion_mask"]))


def score_turns(
    plan: ScorePlan, records: Sequence[Trajectory | Candidates], progress: Progress = unseen
) -> list[Advantages]:
    """For each trajectory the advantage of each turn; for candidates that of each candidate."""
    return scores_of(Critic.load(plan), records, progress)


def scores_of(
    critic: Critic, records: Sequence[Trajectory | Candidates], progress: Progress = unseen
) -> list[Advantages]:
    """As `score_turns`, by a critic that is loaded already."""
    chats = [chat for record in records for chat in _chats(record)]
    scored = iter(critic.score(chats, progress))
    return [
        tuple(next(scored)[0] for _ in record.candidates)
        if isinstance(record, Candidates)
        else next(scored)
        for record in records
    ]


def pair_accuracy(
    plan: ScorePlan, pairs: Sequence[Pair], progress: Progress = unseen
) -> dict[str, Any]:
    """How often a critic's summed advantages put the chosen before the rejected.

    Returns:
        `pairs`, `accuracy` (ties count half) and `margin`, the mean difference.
    """
    chats = [
        Chat([*pair.prompt, *said], pair.hidden, _said(pair.prompt))
        for pair in pairs
        for said in (pair.chosen, pair.rejected)
    ]
    sums = [sum(turns) for turns in Critic.load(plan).score(chats, progress)]
    margins = [a - b for a, b in zip(sums[::2], sums[1::2], strict=True)]
    won = sum((margin > 0) + 0.5 * (margin == 0) for margin in margins)
    count = max(1, len(pairs))
    return {"pairs": len(pairs), "accuracy": won / count, "margin": sum(margins) / count}


def batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """The places of rows, longest first, in groups that have so many tokens when padded."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda one: -lengths[one]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > tokens:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _chats(record: Trajectory | Candidates) -> Iterator[Chat]:
    if isinstance(record, Trajectory):
        yield Chat(record.messages, record.hidden)
        return
    before = _said(record.messages)
    for text in record.candidates:
        said: ChatMessage = {"role": "assistant", "content": text}
        yield Chat([*record.messages, said], record.hidden, before)


def _said(messages: Sequence[ChatMessage]) -> int:
    return sum(message["role"] == "assistant" for message in messages)
