"""Scores an answer: the share of calls for which it gives what the reference gives."""

from dataclasses import dataclass

from memserver_evals.colbench.backend.examples import BackendExample
from memserver_evals.colbench.sandbox.pool import Sandbox
from memserver_evals.colbench.sandbox.values import CallOutcome
from memserver_evals.systems.shared import Shared


@dataclass(frozen=True, slots=True)
class Grade:
    """What came of one answer, call by call."""

    passed: tuple[bool, ...]  # whether the answer gave what the reference gave, by exact type
    passed_by_operator: tuple[bool, ...]  # the same by `==`, as released
    got: tuple[CallOutcome, ...]  # what the answer gave
    # what the reference gave. A call for which it gave no value can't be passed
    expected: tuple[CallOutcome, ...]

    @property
    def share(self) -> float:
        """Of the calls passed, 0 to 1: the reward."""
        return sum(self.passed) / len(self.passed)


class Grader:
    """Runs references and answers in servers of their own, and compares here what came out of the two.

    A reference is run once; so many are kept as have a place.
    """

    def __init__(self, sandbox: Sandbox, kept: int = 20_000) -> None:
        self.sandbox = sandbox
        self._expected: Shared[BackendExample, tuple[CallOutcome, ...]] = Shared(kept)

    async def grade(self, example: BackendExample, answer: str) -> Grade:
        """Score an answer; no answer makes this raise. Raises SetupError: this machine can't run code safely."""
        expected = await self.expected(example)
        got = await self.sandbox.run(answer, example.calls)
        passed = tuple(mine.equals(its) for mine, its in zip(got, expected, strict=True))
        loosely = (mine.equals_by_operator(its) for mine, its in zip(got, expected, strict=True))
        return Grade(passed, tuple(loosely), got, expected)

    async def expected(self, example: BackendExample) -> tuple[CallOutcome, ...]:
        """What the reference gives. Raises SetupError: this machine can't run code safely."""
        outcomes = await self._expected.get(
            example, lambda: self.sandbox.run(example.reference, example.calls, kind="reference")
        )
        if any(outcome.stop == "time" for outcome in outcomes):
            self._expected.forget(example)  # the machine may have been busy: it is run again
        return outcomes
