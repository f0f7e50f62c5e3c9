"""TEMP."""
from __future__ import annotations
from dataclasses import dataclass, field, replace
from typing import Any
from contextlib import contextmanager
@dataclass(frozen=True)
class Span:
    slot: int; attempt: int; round: int; t_issued: float; t_end: float; fate: str
    queued: float = 0.0; read: float = 0.0; compute: float = 0.0; write: float = 0.0
@dataclass(frozen=True)
class Report:
    issued: int = 0; used: int = 0; surplus: int = 0; failed: int = 0; voided: int = 0; elapsed: float = 0.0
    certificate: Any = None; awaited: int = 0; rounds: int = 1; retries: int = 0; throttles: int = 0; recovered: int = 0
    late: int = 0; stale: int = 0; duplicates: int = 0; refused_writes: int = 0; slow_downs: int = 0; by_reference: int = 0
    failures: Any = field(default_factory=dict); code: str = ""; n_workers: int = 0; k: int = 0
    bytes_up: int = 0; bytes_down: int = 0; encode_seconds: float = 0.0; decode_seconds: float = 0.0; spans: tuple = (); notes: tuple = ()
    @property
    def balanced(self): return self.issued == self.used + self.surplus + self.failed + self.voided
    def merge(self, o):
        d = {}
        for n in self.__dataclass_fields__:
            a, b = getattr(self, n), getattr(o, n)
            if n in ("certificate", "code", "n_workers", "k"): d[n] = a
            elif isinstance(a, dict): d[n] = {k: a.get(k, 0) + b.get(k, 0) for k in {*a, *b}}
            else: d[n] = a + b
        return Report(**d)
    def __str__(self): return f"reply lost, result recovered: {self.recovered}"
def plot_timeline(*a, **k): ...
@contextmanager
def progress(total, desc): ...
