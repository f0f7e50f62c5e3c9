"""When to stop waiting."""

from serverless_gc.policies.deadline import Deadline
from serverless_gc.policies.decodable import Certifies, UntilDecodable
from serverless_gc.policies.error import TracksError, UntilError, natural_policy
from serverless_gc.policies.firstk import FirstK, KAsync, KBatchAsync, KBatchSync, KSync, WaitAll
from serverless_gc.policies.guarded import Guarded
from serverless_gc.policies.speculate import Speculate, late_after

__all__ = [
    "Certifies",
    "Deadline",
    "FirstK",
    "Guarded",
    "KAsync",
    "KBatchAsync",
    "KBatchSync",
    "KSync",
    "Speculate",
    "TracksError",
    "UntilDecodable",
    "UntilError",
    "WaitAll",
    "late_after",
    "natural_policy",
]
