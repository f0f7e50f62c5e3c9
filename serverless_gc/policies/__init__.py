"""When to stop waiting, whom to ask, and in how many bits to answer."""

from serverless_gc.policies.adasync import AdaSync, k_by_square_root, k_for_exponential
from serverless_gc.policies.anytime import Anytime
from serverless_gc.policies.compress import DitheredUniform, Sign, StochasticRounding, TopK
from serverless_gc.policies.cutoff import Cutoff
from serverless_gc.policies.deadline import Deadline
from serverless_gc.policies.decodable import UntilDecodable
from serverless_gc.policies.error import TracksError, UntilError
from serverless_gc.policies.firstdone import FirstDone
from serverless_gc.policies.firstk import FirstK, KAsync, KBatchAsync, KBatchSync, KSync, WaitAll
from serverless_gc.policies.freshk import FreshK
from serverless_gc.policies.gossip import GossipProgress, GossipReady
from serverless_gc.policies.groups import Groups
from serverless_gc.policies.guarded import Guarded
from serverless_gc.policies.locally_async import LocallyAsync
from serverless_gc.policies.natural import approximate_policy, natural_policy
from serverless_gc.policies.predict import (
    EmpiricalWindow,
    KalmanLog,
    Predictor,
    StaticNormal,
    best_cutoff,
    normal_order_stat,
)
from serverless_gc.policies.rates import allocate_bits, bits_for, error_for, independent_bits, step_for
from serverless_gc.policies.speculate import Speculate, late_after
from serverless_gc.policies.tokens import GlobalBatch
from serverless_gc.policies.tree import UntilTree
from serverless_gc.policies.triggers import CADA2Trigger, LagPSTrigger, has_changed

__all__ = [
    "AdaSync",
    "Anytime",
    "CADA2Trigger",
    "Cutoff",
    "Deadline",
    "DitheredUniform",
    "EmpiricalWindow",
    "FirstDone",
    "FirstK",
    "FreshK",
    "GlobalBatch",
    "GossipProgress",
    "GossipReady",
    "Groups",
    "Guarded",
    "KAsync",
    "KBatchAsync",
    "KBatchSync",
    "KSync",
    "KalmanLog",
    "LagPSTrigger",
    "LocallyAsync",
    "Predictor",
    "Sign",
    "Speculate",
    "StaticNormal",
    "StochasticRounding",
    "TopK",
    "TracksError",
    "UntilDecodable",
    "UntilError",
    "UntilTree",
    "WaitAll",
    "allocate_bits",
    "approximate_policy",
    "best_cutoff",
    "bits_for",
    "error_for",
    "has_changed",
    "independent_bits",
    "k_by_square_root",
    "k_for_exponential",
    "late_after",
    "natural_policy",
    "normal_order_stat",
    "step_for",
]
