"""What moto's CloudFormation drops from templates without a word, put back.

That is properties of functions and buckets, ``!Ref`` of a layer, and ``AWS::Lambda::EventInvokeConfig``. A template
that deploys half of what it says would make every test of it worthless.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

__all__ = ["complete"]

_MODEL_METHODS = ("create_from_cloudformation_json", "update_from_cloudformation_json")


@cache
def complete() -> None:
    """Complete moto's models, once in a process."""
    from moto.awslambda.models import LambdaFunction, LayerVersion
    from moto.s3.models import FakeBucket

    _after(LambdaFunction, _complete_function)
    _after(FakeBucket, _complete_bucket)
    layer_version: Any = LayerVersion
    layer_version.physical_resource_id = property(lambda layer: layer.arn)
    _add_event_invoke_config()


def _after(model: Any, finish: Callable[[Any, Mapping[str, Any]], None]) -> None:
    def finished(original: Callable[..., Any]) -> Callable[..., Any]:
        def completed(*args: Any, **kwargs: Any) -> Any:
            resource = original(*args, **kwargs)
            template = kwargs["cloudformation_json"] if "cloudformation_json" in kwargs else args[1]
            finish(resource, template.get("Properties", {}))
            return resource

        return completed

    for name in _MODEL_METHODS:
        setattr(model, name, staticmethod(finished(getattr(model, name))))


def _complete_function(function: Any, properties: Mapping[str, Any]) -> None:
    function.layers = function._get_layers_data(properties.get("Layers", []))  # noqa: SLF001 - nothing public does it
    function.architectures = properties.get("Architectures", ["x86_64"])
    function.ephemeral_storage = int(properties.get("EphemeralStorage", {}).get("Size", 512))
    function.tags = {tag["Key"]: tag["Value"] for tag in properties.get("Tags", [])}
    function.memory_size = int(properties.get("MemorySize", 128))
    function.timeout = int(properties.get("Timeout", 3))
    reserved = properties.get("ReservedConcurrentExecutions")
    function.reserved_concurrency = None if reserved is None else int(reserved)


def _complete_bucket(bucket: Any, properties: Mapping[str, Any]) -> None:
    from moto.s3.models import PublicAccessBlock

    rules = properties.get("LifecycleConfiguration", {}).get("Rules", [])
    if rules:
        bucket.set_lifecycle([_lifecycle_rule(rule) for rule in rules])
    block = properties.get("PublicAccessBlockConfiguration")
    if block:
        names = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
        bucket.public_access_block = PublicAccessBlock(*(str(block.get(name, "false")).lower() for name in names))


def _lifecycle_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a rule of a template into one of the S3 API."""
    result: dict[str, Any] = {"ID": rule.get("Id"), "Status": rule["Status"]}
    result["Filter"] = {"Prefix": rule.get("Prefix", "")}
    if "ExpirationInDays" in rule:
        result["Expiration"] = {"Days": str(rule["ExpirationInDays"])}
    if "AbortIncompleteMultipartUpload" in rule:
        result["AbortIncompleteMultipartUpload"] = {
            "DaysAfterInitiation": str(rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"])
        }
    return result


def _add_event_invoke_config() -> None:
    from moto.awslambda.models import lambda_backends
    from moto.core.common_models import CloudFormationModel

    model: Any = CloudFormationModel

    class EventInvokeConfig(model):  # type: ignore[misc]  # a class of a library that is looked at lazily
        """Settings of asynchronous invocations; moto finds it among the subclasses of its model."""

        def __init__(self, function: str, region: str, account_id: str) -> None:
            self.function, self.region, self.account_id = function, region, account_id

        @property
        def physical_resource_id(self) -> str:
            return f"{self.function}|$LATEST"

        @staticmethod
        def cloudformation_name_type() -> str:
            return ""

        @staticmethod
        def cloudformation_type() -> str:
            return "AWS::Lambda::EventInvokeConfig"

        @classmethod
        def has_cfn_attr(cls, attr: str) -> bool:
            del attr
            return False

        @classmethod
        def create_from_cloudformation_json(
            cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **_: Any
        ) -> EventInvokeConfig:
            del resource_name
            properties = cloudformation_json["Properties"]
            config = {
                name: int(properties[name])
                for name in ("MaximumRetryAttempts", "MaximumEventAgeInSeconds")
                if name in properties
            }
            backend = lambda_backends[account_id][region_name]
            function = properties["FunctionName"]
            backend.get_function(function).event_invoke_config.clear()
            backend.put_function_event_invoke_config(function, config)
            return cls(function, region_name, account_id)

        @classmethod
        def update_from_cloudformation_json(
            cls,
            original_resource: EventInvokeConfig,
            new_resource_name: str,
            cloudformation_json: Any,
            account_id: str,
            region_name: str,
        ) -> EventInvokeConfig:
            del original_resource
            return cls.create_from_cloudformation_json(new_resource_name, cloudformation_json, account_id, region_name)

        def delete(self, account_id: str, region: str) -> None:
            from moto.awslambda.exceptions import UnknownFunctionException

            with contextlib.suppress(UnknownFunctionException):  # the stack may have deleted the function first
                lambda_backends[account_id][region].get_function(self.function).event_invoke_config.clear()
