"""What decodes, by the rules that codes were specified with: plain closures over sets, without any of our trackers."""

import numpy as np


def peeled(equations, known):
    """Every variable that follows from those known, when an equation with one unknown variable determines it."""
    known, grew = set(known), True
    while grew:
        grew = False
        for variables in equations:
            unknown = variables - known
            if len(unknown) == 1:
                known |= unknown
                grew = True
    return known


def ldpc(code, messages):
    return set(range(code.k)) <= peeled([set(check) for check in code.checks], messages)


def lt(code, messages):
    return set(range(code.k)) <= peeled([set(np.flatnonzero(code.generator[m])) for m in messages], ())


def grid(side, parities):
    """Cells of a square grid: a line with at most so many lost cells is repaired."""
    cells = np.arange(side * side).reshape(side, side)

    def decodes(code, messages):  # noqa: ARG001 - as all rules
        known, grew = set(messages), True
        while grew:
            grew = False
            for line in [*cells.tolist(), *cells.T.tolist()]:
                if 0 < len(set(line) - known) <= parities:
                    known |= set(line)
                    grew = True
        return len(known) == cells.size

    return decodes


def _transforms(code):
    """Length of each transform of a polar code, its data positions, and where its first worker sits."""
    groups = 1 if code.params().get("stages") is None else code.n_workers >> code.params()["stages"]
    per_group = code.n_workers // groups
    length = 1 << (per_group - 1).bit_length()
    offset = length - per_group if code.params()["shortening"] == "puncture" else 0
    each = code.k // groups
    for group in range(groups):
        info = [i - group * length for i in code.information_set[group * each : (group + 1) * each]]
        yield length, info, offset, range(group * per_group, (group + 1) * per_group)


def polar_peel(code, messages):
    """Belief propagation on the butterfly graph, frozen zeros included."""
    for length, info, offset, workers in _transforms(code):
        top = length.bit_length() - 1
        equations = []
        for level in range(top):
            for upper in range(length):
                lower = upper | 1 << level
                if lower != upper:
                    equations.append({(level + 1, lower), (level, lower)})
                    equations.append({(level + 1, upper), (level, upper), (level, lower)})
        held = {offset + w - workers.start for w in workers}
        zeros = {(0, i) for i in range(length) if i not in info}
        if not offset:  # positions that no worker holds are sums of nothing
            zeros |= {(top, i) for i in range(length) if i not in held}
        arrived = {(top, offset + m - workers.start) for m in messages if m in workers}
        if not {(0, i) for i in info} <= peeled(equations, zeros | arrived):
            return False
    return True


def polar_sequential(code, messages):
    """The recursion over halves: a first half needs both values, a second half either."""

    def known(v):
        if len(v) == 1:
            return v
        a, b = np.split(v, 2)
        return np.concatenate([known(a & b), known(a | b)])

    for length, info, offset, workers in _transforms(code):
        v = np.ones(length, bool)
        v[:offset] = False
        v[[offset + w - workers.start for w in workers]] = [w in messages for w in workers]
        if not known(v)[info].all():
            return False
    return True


def nested(code, messages):
    highest = [-1] * code.n_workers
    for message in messages:
        worker, level = divmod(message, code.n_levels)
        highest[worker] = max(highest[worker], level)
    return any(sum(h >= t for h in highest) >= code.n_workers - t for t in range(code.n_levels))


def coded_reduce(code, messages):
    return sum(m < code.branching for m in messages) >= code.branching - code.tolerated


def two_level(code, messages):
    """Enough rows that have enough workers each, or columns."""
    arrived = np.zeros((code.outer.n_workers, code.inner.n_workers), bool)
    arrived.reshape(-1)[list(messages)] = True
    rows, columns = (side.n_workers - side.tolerated for side in (code.outer, code.inner))
    by_rows = (arrived.sum(axis=1) >= columns).sum() >= rows
    return by_rows or (arrived.sum(axis=0) >= rows).sum() >= columns


def pairs(code, messages):
    return sum({2 * j, 2 * j + 1} <= set(messages) for j in range(code.n_workers)) >= code.k // 2


def count(needed):
    return lambda code, messages: len(messages) >= needed(code)


RULES = {
    "coded-reduce": coded_reduce,
    "coded-reduce-12": coded_reduce,
    "entangled": count(lambda c: c.split.p * c.split.q * c.split.inner + c.split.inner - 1),
    "lcc-mmc": count(lambda c: 2 * c.k - 1),
    "ldpc-peel": ldpc,
    "local-parity-2": grid(4, 2),
    "lt-peel": lt,
    "matdot": count(lambda c: 2 * c.split.inner - 1),
    "nested": nested,
    "nested-2": nested,
    "ortho-matdot": count(lambda c: 2 * c.split.inner - 1),
    "polar-peel": polar_peel,
    "polar-sc": polar_sequential,
    "polar-shortened": polar_peel,
    "polar-stages-hadamard": polar_sequential,
    "polar-stages-peel": polar_peel,
    "polar-stages-sc": polar_sequential,
    "product-gradient-9": two_level,
    "rotation": pairs,
    "short-dot": count(lambda c: c.threshold),
}
"""Codes whose trackers follow a rule of their own, weaker than linear algebra."""
