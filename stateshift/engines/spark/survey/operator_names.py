"""Which directory is whose: an operator's name and its place in a workflow (IS-7). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from stateshift.formats import uid
from stateshift.specification import OperatorSpec, Spec


def directory_of(spec: Spec, operator: OperatorSpec, index: Mapping[str, str]) -> str:
    """Return what the spec says, else the index beside the image, else the hash of the name."""
    profile = spec.uid_hash
    hashed = uid.directory_name(operator.name, profile.p, profile.m, profile.offset, profile.signed)
    return operator.directory or index.get(operator.name) or hashed
