"""Decentralized schemes: what nodes do, how they do it over an object store, and sums among them."""

from serverless_gc.gossip.aet import AET, LinearSampleTrigger
from serverless_gc.gossip.lasgd import GroupedSGD, GroupGradients, average_groups
from serverless_gc.gossip.layup import LEAST_WEIGHT, LayUp
from serverless_gc.gossip.node import Arrays, Gradient, Mail, NodeKernel, SchemeKernel, own_share, synchronous
from serverless_gc.gossip.push_sum import PushSum, RowAverage
from serverless_gc.gossip.reduce import driver_reduce, one_peer_gossip, ring_reduce, scatter_reduce
from serverless_gc.gossip.stored import StoredNodes

__all__ = [
    "AET",
    "LEAST_WEIGHT",
    "Arrays",
    "Gradient",
    "GroupGradients",
    "GroupedSGD",
    "LayUp",
    "LinearSampleTrigger",
    "Mail",
    "NodeKernel",
    "PushSum",
    "RowAverage",
    "SchemeKernel",
    "StoredNodes",
    "average_groups",
    "driver_reduce",
    "one_peer_gossip",
    "own_share",
    "ring_reduce",
    "scatter_reduce",
    "synchronous",
]
