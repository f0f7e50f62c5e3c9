"""What attempts do after they were given up, as far as the clock knows it."""

from __future__ import annotations

from typing import TypedDict

from serverless_gc.engine import Host, VirtualHost

__all__ = ["News", "Unseen"]


class News(TypedDict):
    """Arguments of `Account.with_report`."""

    run_on: float | None
    most: int


class Unseen:
    """Asks a simulated clock what its driver cannot see; a real clock has nothing to tell.

    Parameters
    ----------
    host
        The session's; what it did before is not asked for.

    Examples
    --------
    >>> from serverless_gc.engine import Engine
    >>> from serverless_gc.policies import KSync
    >>> from serverless_gc.stragglers import Exponential
    >>> host = VirtualHost(Exponential(1.0))
    >>> unseen = Unseen(host)
    >>> _ = list(host.simulate(Engine(KSync(8), n_slots=16), rounds=100))
    >>> news = unseen.news()
    >>> news["most"] > 16, news["run_on"] > 0, unseen.news()["run_on"]
    (True, True, 0.0)
    """

    def __init__(self, host: Host | None = None) -> None:
        self._clock = host if isinstance(host, VirtualHost) else None
        self._ignored = self._since = 0.0
        if self._clock is not None:
            self._ignored, self._since = self._clock.ignored_seconds, self._clock.now

    def news(self) -> News:
        """Return the seconds run on since the last time, and how many ran at once from the beginning on, at most."""
        if self._clock is None:
            return News(run_on=None, most=0)
        before, self._ignored = self._ignored, self._clock.ignored_seconds
        return News(run_on=self._ignored - before, most=self._clock.peak_since(self._since))
