"""Multi-message codes: a worker sends a message after every few subtasks, so what a slow one has done counts.

One scheme per file. The order of a worker's placement is its order of computation; messages of one worker arrive as a
prefix of it.
"""

from serverless_gc.codes.multi.clustered import ClusteredMultiMessage
from serverless_gc.codes.multi.lagrange import LagrangeMultiMessage
from serverless_gc.codes.multi.partial_gradients import CodedPartialGradients
from serverless_gc.codes.multi.uncoded import UncodedMultiMessage

__all__ = ["ClusteredMultiMessage", "CodedPartialGradients", "LagrangeMultiMessage", "UncodedMultiMessage"]
