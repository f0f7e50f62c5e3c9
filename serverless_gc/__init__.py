"""Coded computation on AWS Lambda: gradients and matrix products that do not wait for stragglers.

>>> import numpy as np, serverless_gc as sgc
>>> X, y, w = np.eye(8, 3), np.zeros(8), np.ones(3)
>>> sgc.coded_gradient(X, y, w, code="polar", n_workers=8, k=4)
array([1., 1., 1.])

Names are loaded when first used, so importing the package is cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serverless_gc import codes as codes
    from serverless_gc import inject as inject
    from serverless_gc import policies as policies
    from serverless_gc import stragglers as stragglers
    from serverless_gc.api import coded_gradient as coded_gradient
    from serverless_gc.api import coded_gradient_async as coded_gradient_async
    from serverless_gc.api import coded_matmul as coded_matmul
    from serverless_gc.api import coded_matmul_async as coded_matmul_async
    from serverless_gc.api import coded_matvec as coded_matvec
    from serverless_gc.api import coded_matvec_async as coded_matvec_async
    from serverless_gc.data.coded import CodedData as CodedData
    from serverless_gc.data.encoded import EncodedData as EncodedData
    from serverless_gc.data.gradient import GradientData as GradientData
    from serverless_gc.errors import AccuracyWarning as AccuracyWarning
    from serverless_gc.errors import ConfigError as ConfigError
    from serverless_gc.errors import DeadlineExceeded as DeadlineExceeded
    from serverless_gc.errors import DecodeError as DecodeError
    from serverless_gc.errors import InputError as InputError
    from serverless_gc.errors import InvokeError as InvokeError
    from serverless_gc.errors import NotDecodableError as NotDecodableError
    from serverless_gc.errors import ServerlessGCError as ServerlessGCError
    from serverless_gc.errors import StoreError as StoreError
    from serverless_gc.errors import WrongResult as WrongResult
    from serverless_gc.fitting import DecentralizedFit as DecentralizedFit
    from serverless_gc.fitting import Fit as Fit
    from serverless_gc.fitting import Scheme as Scheme
    from serverless_gc.fitting import minimize as minimize
    from serverless_gc.fitting import minimize_async as minimize_async
    from serverless_gc.fitting import minimize_decentralized as minimize_decentralized
    from serverless_gc.fitting import minimize_decentralized_async as minimize_decentralized_async
    from serverless_gc.fitting import minimize_stochastic as minimize_stochastic
    from serverless_gc.fitting import minimize_stochastic_async as minimize_stochastic_async
    from serverless_gc.fitting.encoded import EncodedFit as EncodedFit
    from serverless_gc.fitting.encoded import encoded_least_squares as encoded_least_squares
    from serverless_gc.fitting.encoded import encoded_least_squares_async as encoded_least_squares_async
    from serverless_gc.observe import Report as Report
    from serverless_gc.plan import recommend as recommend
    from serverless_gc.policies import Deadline as Deadline
    from serverless_gc.policies import FirstK as FirstK
    from serverless_gc.policies import KAsync as KAsync
    from serverless_gc.policies import KBatchAsync as KBatchAsync
    from serverless_gc.policies import KBatchSync as KBatchSync
    from serverless_gc.policies import KSync as KSync
    from serverless_gc.policies import Speculate as Speculate
    from serverless_gc.policies import UntilDecodable as UntilDecodable
    from serverless_gc.policies import UntilError as UntilError
    from serverless_gc.policies import WaitAll as WaitAll
    from serverless_gc.session import Session as Session

__version__ = "0.1.0"

_HOMES = {
    "AccuracyWarning": "errors",
    "CodedData": "data.coded",
    "ConfigError": "errors",
    "Deadline": "policies",
    "DeadlineExceeded": "errors",
    "DecentralizedFit": "fitting",
    "DecodeError": "errors",
    "EncodedData": "data.encoded",
    "EncodedFit": "fitting.encoded",
    "FirstK": "policies",
    "Fit": "fitting",
    "GradientData": "data.gradient",
    "InputError": "errors",
    "InvokeError": "errors",
    "KAsync": "policies",
    "KBatchAsync": "policies",
    "KBatchSync": "policies",
    "KSync": "policies",
    "NotDecodableError": "errors",
    "Report": "observe",
    "Scheme": "fitting",
    "ServerlessGCError": "errors",
    "Session": "session",
    "Speculate": "policies",
    "StoreError": "errors",
    "UntilDecodable": "policies",
    "WaitAll": "policies",
    "WrongResult": "errors",
    "UntilError": "policies",
    "coded_gradient": "api",
    "coded_gradient_async": "api",
    "coded_matmul": "api",
    "coded_matmul_async": "api",
    "coded_matvec": "api",
    "coded_matvec_async": "api",
    "encoded_least_squares": "fitting.encoded",
    "encoded_least_squares_async": "fitting.encoded",
    "recommend": "plan",
    "minimize": "fitting",
    "minimize_async": "fitting",
    "minimize_decentralized": "fitting",
    "minimize_decentralized_async": "fitting",
    "minimize_stochastic": "fitting",
    "minimize_stochastic_async": "fitting",
}
_MODULES = frozenset({"codes", "inject", "policies", "stragglers"})

__all__ = [
    "AccuracyWarning",
    "CodedData",
    "ConfigError",
    "Deadline",
    "DeadlineExceeded",
    "DecentralizedFit",
    "DecodeError",
    "EncodedData",
    "EncodedFit",
    "FirstK",
    "Fit",
    "GradientData",
    "InputError",
    "InvokeError",
    "KAsync",
    "KBatchAsync",
    "KBatchSync",
    "KSync",
    "NotDecodableError",
    "Report",
    "Scheme",
    "ServerlessGCError",
    "Session",
    "Speculate",
    "StoreError",
    "UntilDecodable",
    "UntilError",
    "WaitAll",
    "WrongResult",
    "__version__",
    "coded_gradient",
    "coded_gradient_async",
    "coded_matmul",
    "coded_matmul_async",
    "coded_matvec",
    "coded_matvec_async",
    "codes",
    "encoded_least_squares",
    "encoded_least_squares_async",
    "inject",
    "minimize",
    "minimize_async",
    "minimize_decentralized",
    "minimize_decentralized_async",
    "minimize_stochastic",
    "minimize_stochastic_async",
    "policies",
    "recommend",
    "stragglers",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
