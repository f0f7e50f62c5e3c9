"""Version of the protocol between driver and worker.

Raised whenever a task or reply changes meaning. Driver and worker compare it before any block is read.
"""

from __future__ import annotations

__all__ = ["PROTOCOL"]

PROTOCOL = 4
