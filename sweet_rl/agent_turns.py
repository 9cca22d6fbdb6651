"""Which tokens of a chat are the agent's, for any chat template.

A loss, and a turn's worth, are taken on these alone: not on what the human said, nor on headers. Owns how
messages are cleaned and rendered for training; serving does the same, so both see the same tokens.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from memserver.errors import InvalidInput
from memserver.llm.control_tokens import escape_control_tokens
from sweet_rl.trajectories import ChatMessage

Tokenizer = Any
"""Hugging Face's; it has a chat template."""
IGNORED = -100
"""The label of a token without a loss."""
_PROBE: tuple[ChatMessage, ...] = (
    {"role": "system", "content": "Ask."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "One?"},
    {"role": "user", "content": "Yes"},
    {"role": "assistant", "content": "Two!"},
)


def cleaned(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """The messages as a model sees them.

    Look-alikes of control tokens are escaped, no matter who wrote them: a person's `<|im_end|>` would end a
    turn, and a header in its text begin one of the agent. White space around what the agent said goes: a
    line break at its start would merge with the header's into one token.
    """
    return [
        {
            "role": message["role"],
            "content": text.strip() if message["role"] == "assistant" else text,
        }
        for message in messages
        for text in (escape_control_tokens(message["content"]),)
    ]


def rendered(
    tokenizer: Tokenizer, messages: Sequence[ChatMessage], *, ready: bool = False
) -> list[int]:
    """The tokens of a chat that is cleaned already; `ready` for the agent's next message."""
    return list(
        tokenizer.apply_chat_template(
            list(messages), tokenize=True, return_dict=True, add_generation_prompt=ready
        )["input_ids"]
    )


def all_rendered(
    tokenizer: Tokenizer, chats: Sequence[Sequence[ChatMessage]], *, ready: bool = False
) -> list[list[int]]:
    """The same of many at once, which takes all cores."""
    if not chats:
        return []
    made = tokenizer.apply_chat_template(
        [list(chat) for chat in chats], tokenize=True, return_dict=True, add_generation_prompt=ready
    )
    return [list(ids) for ids in made["input_ids"]]


def _next(ids: Sequence[int], token: int, start: int) -> int:
    """Where the token is next, or the end."""
    try:
        return ids.index(token, start)
    except ValueError:
        return len(ids)


@dataclass(frozen=True, slots=True)
class AgentTurns:
    head: tuple[int, ...]  # the tokens in front of it
    end: int  # the token after it, which the agent writes too

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Self:
        """Read both off a tokenizer's chat template, and try them on a small chat."""
        if not tokenizer.chat_template:
            raise InvalidInput(f"The tokenizer of {tokenizer.name_or_path} has no chat template.")
        asked = rendered(tokenizer, _PROBE[:2])
        ready = rendered(tokenizer, _PROBE[:2], ready=True)
        said = rendered(tokenizer, _PROBE[:3])
        special = set(tokenizer.all_special_ids)
        head = tuple(ready[len(asked) :])
        end = next((token for token in said[len(ready) :] if token in special), None)
        wanted = [message["content"] for message in _PROBE if message["role"] == "assistant"]
        if (
            ready[: len(asked)] == asked
            and said[: len(ready)] == ready
            and head
            and end is not None
        ):
            turns = cls(head, end)
            ids = rendered(tokenizer, _PROBE)
            if [tokenizer.decode(ids[a : b - 1]) for a, b in turns.spans(ids)] == wanted:
                return turns
        raise InvalidInput(
            f"The chat template of {tokenizer.name_or_path} doesn't mark the agent's turns by a header "
            "and a special token at their end."
        )

    def spans(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """For each turn of the agent its first token, and the place after its last (the end token).

        A turn that was cut off goes to the end.
        """
        found: list[tuple[int, int]] = []
        length = len(self.head)
        place = _next(ids, self.head[0], 0)
        while place < len(ids):
            start = place + length
            if tuple(ids[place:start]) == self.head:
                place = min(_next(ids, self.end, start) + 1, len(ids))
                found.append((start, place))
            else:
                place += 1
            place = _next(ids, self.head[0], place)
        return found

    def mask(self, ids: Sequence[int]) -> list[int]:
        mask = [0] * len(ids)
        for start, stop in self.spans(ids):
            mask[start:stop] = [1] * (stop - start)
        return mask

    def labelled(
        self, tokenizer: Tokenizer, chats: Sequence[Sequence[ChatMessage]]
    ) -> list[dict[str, list[int]]]:
        """Of each chat its `input_ids`, and `labels` on the agent's tokens."""
        shown = [cleaned(messages) for messages in chats]
        found = []
        for messages, ids in zip(shown, all_rendered(tokenizer, shown), strict=True):
            said, spans = sum(each["role"] == "assistant" for each in messages), self.spans(ids)
            if len(spans) != said:
                raise InvalidInput(f"{said} messages of the agent, but {len(spans)} turns.")
            labels = [IGNORED] * len(ids)
            for start, stop in spans:
                labels[start:stop] = ids[start:stop]
            found.append({"input_ids": ids, "labels": labels})
        return found
