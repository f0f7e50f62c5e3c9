"""An AWS account on this machine whose Lambda really runs what is deployed.

moto is the account (S3, IAM, STS, CloudFormation, the registry of functions, logs); the data plane is here. `Rig`
starts both on one URL; `serverless_gc.testing.rig.fixtures` has pytest fixtures; ``python -m
serverless_gc.testing.rig`` serves a shell. It needs the packages of ``pip install serverless-gc[rig]``.

What it does not model: permissions, signatures, VPCs, SnapStart, provisioned concurrency, the pace at which Lambda adds
environments, response streaming, destinations and dead-letter queues.
"""

from serverless_gc.testing.lambda_endpoint import Step, error_step
from serverless_gc.testing.rig.client import Admin, Rig, RigCounts, RigEnvironment

__all__ = ["Admin", "Rig", "RigCounts", "RigEnvironment", "Step", "error_step"]
