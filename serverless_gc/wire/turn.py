"""One round of a node of a decentralized scheme: what the node must be told, and where its objects are.

``node/<i>/state/<k>`` is written first, once: it is what makes round ``k`` of node ``i`` done. The mail
``mail/<dst>/<k>/<src>`` is a function of that state, so whoever has the state can make it again, to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["Share", "Turn", "mail_key", "state_key"]

Share: TypeAlias = float | tuple[int, ...]
"""What of a state goes to another node: a part of its mass, or for schemes that cut the model the layers."""


def state_key(prefix: str, node: int, k: int) -> str:
    """Key of a node's state after round ``k``."""
    return f"{prefix}/node/{node}/state/{k}"


def mail_key(prefix: str, dst: int, k: int, src: int) -> str:
    """Key of what ``src`` sent to ``dst`` in round ``k``."""
    return f"{prefix}/mail/{dst}/{k}/{src}"


@dataclass(frozen=True, slots=True)
class Turn:
    """Round ``k`` of a node, complete: neither topology nor schedule needs to be known where it is computed.

    Attributes
    ----------
    node, k
        Which round of which node; rounds are counted from 1.
    kept
        Part of its mass that the node kept after round ``k - 1``.
    rates
        Length of each gradient step in this round.
    out
        (receiver, share) of each node that mail goes to after this round.
    mail
        (sender, round, share) of the mail to take, in the order in which it is handed to the scheme.
    prefix
        What the keys of all nodes' objects begin with, without a slash at its end; empty where there are none.

    Examples
    --------
    >>> turn = Turn(1, 2, 0.5, (0.1,), out=((0, 0.5),), mail=((0, 1, 0.5),), prefix="run")
    >>> Turn.from_dict(turn.to_dict()) == turn
    True
    >>> turn.requests()[:2]
    [('GET', 'run/node/1/state/1'), ('GET', 'run/mail/1/1/0')]
    """

    node: int
    k: int
    kept: float
    rates: tuple[float, ...]
    out: tuple[tuple[int, Share], ...] = ()
    mail: tuple[tuple[int, int, Share], ...] = ()
    prefix: str = ""

    @property
    def before_key(self) -> str:
        """Key of the state that the round begins with; empty in the first one, which begins at the start."""
        return state_key(self.prefix, self.node, self.k - 1) if self.k > 1 else ""

    @property
    def state_key(self) -> str:
        """Key of the state that the round ends with."""
        return state_key(self.prefix, self.node, self.k)

    def requests(self) -> list[tuple[str, str]]:
        """Return method and key of each request for an object of a node; mail may have to be made from a state."""
        wanted = [("GET", self.before_key)] if self.before_key else []
        for src, k, _ in self.mail:
            wanted += [("GET", mail_key(self.prefix, self.node, k, src)), ("GET", state_key(self.prefix, src, k))]
        wanted += [("GET", self.state_key), ("PUT", self.state_key)]
        return wanted + [("PUT", mail_key(self.prefix, dst, self.k, self.node)) for dst, _ in self.out]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types; numbers come back to the last bit. Equal rates are given once."""
        rates = self.rates[:1] if len(set(self.rates)) == 1 else self.rates
        return {
            "node": self.node,
            "k": self.k,
            "kept": self.kept,
            "steps": len(self.rates),
            "rates": rates,
            "out": self.out,
            "mail": self.mail,
            "prefix": self.prefix,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Turn:
        """Inverse of `to_dict`, also after JSON."""
        rates = tuple(plain["rates"])
        return cls(
            node=plain["node"],
            k=plain["k"],
            kept=plain["kept"],
            rates=rates * plain["steps"] if len(rates) == 1 else rates,
            out=tuple((dst, _share(share)) for dst, share in plain["out"]),
            mail=tuple((src, k, _share(share)) for src, k, share in plain["mail"]),
            prefix=plain["prefix"],
        )


def _share(plain: Any) -> Share:
    return tuple(plain) if isinstance(plain, (list, tuple)) else float(plain)
