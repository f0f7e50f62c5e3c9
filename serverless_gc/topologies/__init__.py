"""Who sends to whom in decentralized schemes."""

from serverless_gc.topologies.base import Digraph
from serverless_gc.topologies.fixed import (
    Complete,
    DirectedRing,
    FromAdjacency,
    Groups,
    OnePeerExponential,
    Ring,
    StaticExponential,
)
from serverless_gc.topologies.random_peers import LayerPeers, RandomOut
from serverless_gc.topologies.spectral import distance_to_average, is_doubly_stochastic, second_singular_value

__all__ = [
    "Complete",
    "Digraph",
    "DirectedRing",
    "FromAdjacency",
    "Groups",
    "LayerPeers",
    "OnePeerExponential",
    "RandomOut",
    "Ring",
    "StaticExponential",
    "distance_to_average",
    "is_doubly_stochastic",
    "second_singular_value",
]
