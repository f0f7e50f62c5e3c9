"""What every tracker of an exact code obeys while results arrive."""


def verdicts_of(code, order):
    """Feed a fresh tracker in this order, each result twice; check its laws and return its verdict at every step."""
    tracker = code.tracker()
    verdicts = []
    for worker in order:
        first = bool(tracker.add(worker))
        assert bool(tracker.add(worker)) == first == tracker.decodable
        verdicts.append(first)
    assert verdicts == sorted(verdicts), "monotone"
    assert verdicts[-1], "all results together decode"
    assert sum(verdicts) <= code.n_workers - code.k + 1, "fewer than k results never decode"
    assert verdicts[code.guaranteed_threshold - 1]
    return verdicts
