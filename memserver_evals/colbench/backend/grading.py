"""Scores an answer: the share of calls for which it gives what the reference gives."""

import asyncio
from dataclasses import dataclass, field

from memserver_evals.colbench.backend.examples import BackendExample
from memserver_evals.colbench.sandbox.pool import Sandbox
from memserver_evals.colbench.sandbox.values import Outcome


@dataclass(frozen=True, slots=True)
class Grade:
    """What came of one answer, call by call.

    Attributes:
        passed: whether the answer gave what the reference gave.
        got: what the answer gave.
        expected: what the reference gave. A call for which it gave no value can't be passed.
    """

    passed: tuple[bool, ...]
    got: tuple[Outcome, ...]
    expected: tuple[Outcome, ...]

    @property
    def share(self) -> float:
        """Of the calls passed, 0 to 1: the reward."""
        return sum(self.passed) / len(self.passed)


@dataclass(frozen=True)
class Grader:
    """Runs references and answers in servers of their own, and compares here what came out of the two.

    A reference is run once; so many are kept as have a place.
    """

    sandbox: Sandbox
    kept: int = 20_000
    _expected: dict[BackendExample, asyncio.Task[tuple[Outcome, ...]]] = field(
        default_factory=dict, repr=False
    )

    async def grade(self, example: BackendExample, answer: str) -> Grade:
        """Score an answer; no answer makes this raise. Raises SetupError: this machine can't run code safely."""
        expected = await self.expected(example)
        got = await self.sandbox.run(answer, example.calls)
        passed = tuple(mine.equals(its) for mine, its in zip(got, expected, strict=True))
        return Grade(passed, got, expected)

    async def expected(self, example: BackendExample) -> tuple[Outcome, ...]:
        """What the reference gives. Raises SetupError: this machine can't run code safely."""
        running = self._expected.get(example)
        if running is None:
            running = asyncio.ensure_future(
                self.sandbox.run(example.reference, example.calls, kind="reference")
            )
            self._expected[example] = running
            if len(self._expected) > self.kept:
                del self._expected[next(iter(self._expected))]
        try:
            outcomes = await asyncio.shield(running)
        except BaseException:
            self._expected.pop(example, None)
            raise
        if any(outcome.stop == "time" for outcome in outcomes):
            self._expected.pop(example, None)  # the machine may have been busy: it is run again
        return outcomes
