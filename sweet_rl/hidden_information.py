"""Puts a task's hidden reference in front of a prompt, for a critic in training. An actor never sees it."""

from collections.abc import Sequence

from memserver.prompts import Prompts
from sweet_rl.trajectories import ChatMessage


def with_hidden(
    messages: Sequence[ChatMessage], hidden: str, prompts: Prompts
) -> list[ChatMessage]:
    first, *rest = messages
    told = prompts.render("colbench/hidden_information.md", reference=hidden)
    return [{"role": "system", "content": f"{told}\n\n{first['content']}"}, *rest]
