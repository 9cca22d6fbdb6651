"""The rules of a backend collaboration: how it ends, and what the answer is."""

import re
from collections.abc import Sequence
from textwrap import dedent

from memserver_evals.task import Turn

MARKER = "I WANT TO ANSWER:"
"""What an agent writes before its answer."""
MAX_TURNS = 10
"""Messages of the agent, its answer included."""
_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)


def gives_answer(text: str) -> bool:
    """Whether a message of the agent ends the collaboration."""
    return MARKER in text


def answer_in(text: str) -> str:
    """The code of the agent's last message.

    It is what follows the first marker or, where there is none, the whole message. Of a fenced block
    the inside is taken, wherever it stands. Code that is indented as a whole is moved to the left.
    """
    answer = text.partition(MARKER)[2] if MARKER in text else text
    if fenced := _FENCE.search(answer):
        answer = f"\n{fenced[1]}"
    on_the_line = answer.partition("\n")[0].strip()
    return (answer if on_the_line else dedent(answer)).strip()


def as_dialogue(turns: Sequence[Turn]) -> str:
    """The conversation as text, for a model that plays a part."""
    return "\n".join(f"Person: {turn.said}\nAssistant: {turn.reply.text}" for turn in turns)
