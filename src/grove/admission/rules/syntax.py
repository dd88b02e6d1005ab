"""Kubernetes' own grammar for names, labels, annotations and variables: what is wrong with a string, or nothing.

Each function returns the sentence to put behind `Invalid value: "…":`, worded like the API server's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from grove.api.faults import Fault, invalid, not_supported

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_ENV = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
_PORT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")

ANNOTATIONS_BYTES = 256 * 1024

LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
QUALIFIED_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
ENV_RULE = (
    "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not "
    "start with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation is "
    "'[-._a-zA-Z][-._a-zA-Z0-9]*')"
)


def label_fault(text: str) -> str:
    """The reason why `text` is no DNS-1123 label (a hostname); empty if it is one."""
    return _fault(text, 63, _LABEL, LABEL_RULE)


def label_1035_fault(text: str) -> str:
    """The reason why `text` is no DNS-1035 label, as the name of a Service must be; empty if it is one."""
    return _fault(text, 63, _LABEL_1035, LABEL_1035_RULE)


def subdomain_fault(text: str) -> str:
    return _fault(text, 253, _SUBDOMAIN, SUBDOMAIN_RULE)


def qualified_name_fault(text: str) -> str:
    """The reason why `text` is no key of a label or annotation (`name` or `prefix/name`); empty if it is one."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return (
            "a qualified name " + QUALIFIED_RULE.removeprefix("name part ") + " with an optional DNS subdomain prefix"
        )
    if slash and not prefix:
        return "prefix part must be non-empty"
    if prefix and (wrong := subdomain_fault(prefix)):
        return "prefix part " + wrong
    if not name:
        return "name part must be non-empty"
    if len(name) > 63:
        return "name part must be no more than 63 characters"
    return "" if _QUALIFIED.fullmatch(name) else QUALIFIED_RULE


def label_value_fault(text: str) -> str:
    return _fault(text, 63, _LABEL_VALUE, LABEL_VALUE_RULE)


def _fault(text: str, longest: int, grammar: re.Pattern[str], rule: str) -> str:
    if len(text) > longest:
        return f"must be no more than {longest} characters"
    return "" if grammar.fullmatch(text) else rule


def env_name_fault(text: str) -> str:
    return "" if _ENV.fullmatch(text) and text not in (".", "..") else ENV_RULE


def port_name_fault(text: str) -> str:
    """The reason why `text` is no name of a port (an IANA service name); empty if it is one."""
    if len(text) > 15:
        return "must be no more than 15 characters"
    if not _PORT_NAME.fullmatch(text) or "--" in text:
        return "must contain only alpha-numeric characters (a-z, 0-9), and hyphens, neither at an end nor two in a row"
    return "" if any(c.isalpha() for c in text) else "must contain at least one letter (a-z)"


def enum_faults(path: str, value: Any, allowed: Collection[str]) -> Iterator[Fault]:
    """A word that must be one of these. Other rules check an empty or absent word."""
    if isinstance(value, str) and value and value not in allowed:
        yield not_supported(path, value, allowed)


def label_faults(path: str, labels: dict[str, Any]) -> Iterator[Fault]:
    for key, value in labels.items():
        if wrong := qualified_name_fault(key):
            yield invalid(path, key, wrong)
        if isinstance(value, str) and (wrong := label_value_fault(value)):
            yield invalid(path, value, wrong)


def annotation_faults(path: str, annotations: dict[str, Any]) -> Iterator[Fault]:
    total = 0
    for key, value in annotations.items():
        if wrong := qualified_name_fault(key.lower()):
            yield invalid(path, key, wrong)
        total += len(key.encode("utf-8", "replace")) + (
            len(value.encode("utf-8", "replace")) if isinstance(value, str) else 0
        )
    if total > ANNOTATIONS_BYTES:
        yield invalid(
            path, f"{total} bytes", f"all keys and values together may have at most {ANNOTATIONS_BYTES} bytes"
        )
