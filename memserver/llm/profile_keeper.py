"""What is known of how a model is asked, and when that is to be found out again.

Nothing here runs by itself: all is judged at the next request.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from memserver.errors import ModelError
from memserver.llm.adjusting import adjust, words_of
from memserver.llm.modes import IN_WORDS, DetectedMode
from memserver.llm.profile import OF_MESSAGES, EndpointProfile, ProfileChange, ProfileReport
from memserver.llm.requests import PreparedRequest

_LOG = logging.getLogger("memserver.llm")

Clock = Callable[[], float]
_SOON, _LATER = 60.0, 3600.0
"""Seconds until a fallback is tried again: one that may have had a passing reason, then longer; and another."""
_VIOLATIONS = 3
_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Known:
    profile: EndpointProfile
    changes: dict[str, ProfileChange]
    again_at: float


class ProfileKeeper:
    def __init__(
        self, given: EndpointProfile, fixed: frozenset[str], clock: Clock = time.monotonic
    ) -> None:
        self.profile = given
        self.fixed = fixed
        self.name = ""
        """What the log calls the model."""
        self._given = given
        self._clock = clock
        self._changes: dict[str, ProfileChange] = {}
        self._said: dict[str, object] = {}
        """What the log said last of each field."""
        self.is_open = "mode" not in fixed
        """Whether nobody knows yet which mode the endpoint takes."""
        self._again_at = -_NEVER if self.is_open else _NEVER
        self._pause = _SOON
        self._probed_at = -_NEVER
        self._violations = 0

    @property
    def is_due(self) -> bool:
        return self._again_at != _NEVER and self._clock() >= self._again_at

    def report(self) -> ProfileReport:
        return ProfileReport(self.profile, self.is_open, tuple(self._changes.values()))

    def adjust(self, used: EndpointProfile, error: ModelError, request: PreparedRequest) -> bool:
        """Learn from a refusal of a request that was made with the profile `used`; whether it is worth sending again."""
        step = adjust(used, self.fixed, error, request)
        if step is None:
            return False
        if used != self.profile:
            return True  # another request has learned something meanwhile
        self.profile, change = step
        self._note(change)
        if change.field == "mode":
            self._again_at = self._clock() + _LATER
        return True

    def known(self) -> "Known":
        return Known(self.profile, dict(self._changes), self._again_at)

    def take_back(self, known: "Known", used: EndpointProfile, error: ModelError) -> None:
        """Where a request was refused in every form, give up nothing for it: the fault was another one.

        `known` is of before the request, `used` the profile with which it was last made.
        """
        if self.profile == used != known.profile and words_of(error) is not None:
            self.profile, self._changes = known.profile, known.changes
            self._again_at = known.again_at
            _LOG.warning("The model %s is asked as before: no other form was taken.", self.name)

    def first_to_try(self) -> EndpointProfile:
        """What a probe begins with: as given, but for what a probe can't show."""
        learned = {name: getattr(self.profile, name) for name in OF_MESSAGES - self.fixed}
        return replace(self._given, **learned)

    def adopt(
        self, detected: DetectedMode, profile: EndpointProfile, changes: list[ProfileChange]
    ) -> None:
        first = self.is_open
        self.is_open = False
        self.profile = replace(profile, mode=detected.mode)
        self._changes = {name: self._changes[name] for name in OF_MESSAGES & self._changes.keys()}
        for change in changes:
            self._note(change)
        now = self._clock()
        self._probed_at, self._violations = now, 0
        if detected.mode == "tools":
            self._again_at, self._pause = _NEVER, _SOON
            if first or self._said.get("mode") != detected.mode:
                _LOG.info("The model %s is asked by %s.", self.name, IN_WORDS[detected.mode])
            self._said["mode"] = detected.mode
            return
        self._note(ProfileChange("mode", "tools", detected.mode, detected.why))
        if detected.is_sure:
            self._again_at, self._pause = now + _LATER, _SOON
        else:
            self._again_at = now + self._pause
            self._pause = min(2 * self._pause, _LATER)

    def postpone(self) -> None:
        """The endpoint could not be asked again: what was known holds meanwhile."""
        self._again_at = self._clock() + _SOON

    def record_success(self) -> None:
        self._violations = 0

    def record_violation(self) -> None:
        """A reply was none; after some in a row the endpoint may have become another one."""
        self._violations += 1
        if self._violations >= _VIOLATIONS and "mode" not in self.fixed:
            self._again_at = min(self._again_at, max(self._clock(), self._probed_at + _SOON))

    def forget(self) -> None:
        self.profile = self._given
        self._changes = {}
        self._violations, self._pause = 0, _SOON
        self.is_open = "mode" not in self.fixed
        self._again_at = -_NEVER if self.is_open else _NEVER

    def _note(self, change: ProfileChange) -> None:
        known = self._changes.get(change.field)
        if known is not None:
            change = replace(change, before=known.before)
        self._changes[change.field] = change
        if self._said.get(change.field) == change.after:
            return
        self._said[change.field] = change.after
        if change.field == "mode":
            words = IN_WORDS[change.after]  # type: ignore[index] # it is a mode
            _LOG.warning("The model %s is asked by %s: %s.", self.name, words, change.words)
        else:
            _LOG.warning("The model %s is asked in another form: %s.", self.name, change)
