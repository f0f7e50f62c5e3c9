"""What a rig is asked to be: checked where it is given, sent to its process as one line of JSON."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self, TypeAlias, get_args

from serverless_gc.errors import InputError
from serverless_gc.inject import Faults, Injection, Stragglers
from serverless_gc.limits import DEFAULT_LIMITS, Limits
from serverless_gc.testing.lambda_endpoint import Step

__all__ = ["DEFAULT_MEMORY", "Memory", "Settings", "steps_from_json", "steps_to_json"]

Memory: TypeAlias = Literal["limit", "kill", "off"]

DEFAULT_MEMORY: Memory = "limit" if hasattr(resource, "prlimit") else "off"

_USABLE_FAULTS = ("throttle", "throttle_times", "drop", "lose_reply", "fail", "fail_times", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Parameters of a rig; `serverless_gc.testing.rig.Rig` tells their meaning."""

    python: str = sys.executable
    port: int = 0
    concurrency: int = 1000
    memory: Memory = DEFAULT_MEMORY
    cold_starts: int = 4
    init_timeout: float = 10.0
    event_delay: float = 0.1
    limits: Limits = DEFAULT_LIMITS
    faults: Mapping[str, Mapping[int, Step]] = field(default_factory=dict)
    inject: tuple[Injection, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("port", 0), ("concurrency", 0), ("cold_starts", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not self.init_timeout > 0:
            raise InputError(f"init_timeout must be positive, got {self.init_timeout}")
        if not self.event_delay >= 0:
            raise InputError(f"event_delay must be at least 0 seconds, got {self.event_delay}")
        if self.memory not in get_args(Memory):
            raise InputError(f"memory must be one of {', '.join(get_args(Memory))}, got {self.memory!r}")
        for item in self.inject:
            _check_injection(item)

    def to_line(self) -> str:
        """Write as one line of JSON."""
        content = {
            **{name: getattr(self, name) for name in self.__slots__ if name not in {"limits", "faults", "inject"}},
            "limits": asdict(self.limits),
            "faults": {function: steps_to_json(steps) for function, steps in self.faults.items()},
            "inject": [[type(item).__name__, _given(item)] for item in self.inject],
        }
        return json.dumps(content, default=list) + "\n"  # a selection of slots may be a set

    @classmethod
    def from_line(cls, line: str) -> Self:
        """Read what `to_line` has written."""
        content = json.loads(line)
        kinds: dict[str, type[Injection]] = {"Stragglers": Stragglers, "Faults": Faults}
        content["limits"] = Limits(**content["limits"])
        content["faults"] = {function: steps_from_json(steps) for function, steps in content["faults"].items()}
        content["inject"] = tuple(kinds[kind](**fields) for kind, fields in content["inject"])
        return cls(**content)


def steps_to_json(steps: Mapping[int, Step]) -> dict[str, Any]:
    """Write steps per attempt as JSON types.

    Raises
    ------
    InputError
        If an attempt is numbered below 1.
    """
    for number in steps:
        if number < 1:
            raise InputError(f"attempts are numbered from 1, got {number}")
    return {str(number): asdict(step) for number, step in steps.items()}


def steps_from_json(content: Mapping[str, Any]) -> dict[int, Step]:
    """Read what `steps_to_json` has written."""
    return {int(number): Step(**fields) for number, fields in content.items()}


def _given(item: Injection) -> dict[str, Any]:
    """Return the fields that are not as by default."""
    plain = type(item)()
    return {name: value for name in item.__slots__ if (value := getattr(item, name)) != getattr(plain, name)}


def _check_injection(item: Injection) -> None:
    unusable = sorted(_given(item).keys() - set(_USABLE_FAULTS)) if isinstance(item, Faults) else ()
    if unusable:
        raise InputError(
            f"the rig injects {', '.join(_USABLE_FAULTS[:-1])} of Faults, not {', '.join(unusable)}: "
            "give those to Session(inject=...), and concurrency to the rig itself"
        )
