"""When to stop waiting."""

from serverless_gc.policies.deadline import Deadline
from serverless_gc.policies.decodable import Certifies, UntilDecodable
from serverless_gc.policies.error import TracksError, UntilError
from serverless_gc.policies.firstk import FirstK, KAsync, KBatchAsync, KBatchSync, KSync, WaitAll
from serverless_gc.policies.natural import approximate_policy, natural_policy
from serverless_gc.policies.speculate import Speculate, late_after
from serverless_gc.policies.tree import UntilTree

__all__ = [
    "Certifies",
    "Deadline",
    "FirstK",
    "KAsync",
    "KBatchAsync",
    "KBatchSync",
    "KSync",
    "Speculate",
    "TracksError",
    "UntilDecodable",
    "UntilError",
    "UntilTree",
    "WaitAll",
    "approximate_policy",
    "late_after",
    "natural_policy",
]
