"""A CloudFormation template as Python data, with its functions resolved."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "infra" / "template.yaml"
ABSENT = object()


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms, and dates left as text."""


def _short_form(loader, suffix, node):
    name = suffix if suffix in {"Ref", "Condition"} else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
        return {name: value.split(".", 1) if suffix == "GetAtt" else value}
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    return {name: loader.construct_mapping(node, deep=True)}


_Loader.add_multi_constructor("!", _short_form)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", yaml.SafeLoader.construct_yaml_str)


def load_template(path=TEMPLATE):
    return yaml.load(path.read_text(), Loader=_Loader)  # noqa: S506 - derived from SafeLoader


class Resolver:
    """Evaluates the functions. ``refs`` and ``attributes`` are what the resources turned out to be."""

    def __init__(self, template, parameters=None, refs=None, attributes=None):
        self.template = template
        defaults = {name: p["Default"] for name, p in template["Parameters"].items()}
        pseudo = {
            "AWS::Partition": "aws",
            "AWS::Region": "us-east-1",
            "AWS::AccountId": "123456789012",
            "AWS::URLSuffix": "amazonaws.com",
            "AWS::StackName": "serverless-gc",
            "AWS::NoValue": ABSENT,
        }
        self.refs = {**defaults, **pseudo, **(parameters or {}), **(refs or {})}
        self.attributes = attributes or {}

    def condition(self, name):
        return self.value(self.template["Conditions"][name])

    def resources(self):
        """Name -> resolved resource, of those whose condition holds."""
        return {
            name: self.value(resource)
            for name, resource in self.template["Resources"].items()
            if "Condition" not in resource or self.condition(resource["Condition"])
        }

    def value(self, node):
        if isinstance(node, list):
            return [v for v in map(self.value, node) if v is not ABSENT]
        if not isinstance(node, dict):
            return node
        if len(node) == 1:
            ((name, argument),) = node.items()
            evaluate = getattr(self, "_" + name.removeprefix("Fn::").lower(), None)
            if evaluate and (name.startswith("Fn::") or name == "Ref" or isinstance(argument, str)):
                return evaluate(argument)
        return {k: r for k, v in node.items() if (r := self.value(v)) is not ABSENT}

    def _ref(self, name):
        value = self.refs.get(name, f"<{name}>")
        is_list = self.template["Parameters"].get(name, {}).get("Type") == "CommaDelimitedList"
        return value.split(",") if is_list else value

    def _getatt(self, argument):
        return self.attributes.get(".".join(argument), f"<{'.'.join(argument)}>")

    def _sub(self, text):
        def replace(match):
            name = match[1]
            return str(self._getatt(name.split(".")) if "." in name else self._ref(name))

        return re.sub(r"\$\{([^}]+)\}", replace, text)

    def _if(self, argument):
        name, yes, no = argument
        return self.value(yes if self.condition(name) else no)

    def _join(self, argument):
        return argument[0].join(self.value(argument[1]))

    def _equals(self, argument):
        one, other = self.value(argument)
        return str(one) == str(other)

    def _not(self, argument):
        return not self.value(argument[0])

    def _and(self, argument):
        return all(self.value(part) for part in argument)

    def _condition(self, name):
        return self.condition(name)


def statements_of(resources):
    """Yield (resource, kind of policy, statement) of every policy in resolved resources."""
    for name, resource in resources.items():
        properties = resource["Properties"]
        documents = [(kind, properties[kind]) for kind in ("PolicyDocument", "KeyPolicy") if kind in properties]
        documents += [("PolicyDocument", policy["PolicyDocument"]) for policy in properties.get("Policies", [])]
        for kind, document in documents:
            for statement in document["Statement"]:
                yield name, kind, statement


def as_list(value):
    return value if isinstance(value, list) else [value]
