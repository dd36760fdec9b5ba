"""Findings in their order, and the waivers of a job. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol, TypeVar

from stateshift.specification import JobSpec
from stateshift.survey import Finding


class _Move(Protocol):
    @property
    def job(self) -> JobSpec: ...


M = TypeVar("M", bound=_Move)


def findings_of(move: M, parts: Iterable[Callable[[M], Iterable[Finding]]]) -> tuple[Finding, ...]:
    """Return the findings of these parts, with the refusals that the job waives as warnings."""
    findings: list[Finding] = []
    for part in parts:
        for finding in part(move):
            if finding.level == "refuse" and finding.waive in move.job.waive:
                message = f"{finding.message} (waived: {finding.waive})"
                finding = replace(finding, level="warn", message=message, hint=None)
            findings.append(finding)
    return tuple(findings)
