"""How many texts a request may have: learnt from what an endpoint refuses, since none says so beforehand."""

_PATIENCE = 100


class BatchSize:
    """A size that falls when a request is refused, and is tried larger after many that were taken.

    Each refusal makes the next try rarer, so that a limit which stays costs ever less.

    Attributes:
        now: texts that a request may have.
    """

    def __init__(self, most: int) -> None:
        self.now = most
        self._most = most
        self._taken = 0
        self._patience = _PATIENCE

    def refused(self, size: int) -> None:
        self.fall(size)
        self._patience *= 2

    def fall(self, size: int) -> None:
        self.now = max(1, min(size, self.now))
        self._taken = 0

    def fix(self, size: int) -> None:
        self.now = self._most = size

    def taken(self, size: int) -> None:
        if size < self.now or self.now == self._most:
            return
        self._taken += 1
        if self._taken > self._patience:
            self.now = min(2 * self.now, self._most)
            self._taken = 0
