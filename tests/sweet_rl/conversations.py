"""Conversations of a few words, and what they were worth."""

from collections.abc import Sequence

from sweet_rl.trajectories import ChatMessage, Messages, Trajectory


def chat(*said: str, system: str = "Ask, then answer.") -> Messages:
    """Messages that begin with the human, in turns."""
    messages: list[ChatMessage] = [{"role": "system", "content": system}]
    for place, text in enumerate(said):
        messages.append({"role": "assistant" if place % 2 else "user", "content": text})
    return tuple(messages)


def played(task: str, sample: int, reward: float, *said: str) -> Trajectory:
    """A trajectory with these words."""
    return Trajectory(
        task=task,
        sample=sample,
        hidden=f"def f(x): return x > {len(task)}",
        messages=chat(*said),
        answer=said[-1],
        reward=reward,
    )


def some_trajectories(tasks: int = 4) -> Sequence[Trajectory]:
    """For each task a success of two turns, and two failures."""
    return [
        one
        for number in range(tasks)
        for one in (
            played(f"t{number}", 0, 1, f"I want f{number}.", "Which limit?", "7", "x > 7"),
            played(f"t{number}", 1, 0.5, f"I want f{number}.", "x > 3"),
            played(f"t{number}", 2, 0, f"I want f{number}.", "Why?", "No idea.", "x < 7 or so"),
        )
    ]
