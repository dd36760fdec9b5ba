"""What the user asked for: `parse_spec(text) -> Spec`, and the JSON Schema of what it reads."""

from stateshift.spec.model import (
    ClusterSpec,
    DataSpec,
    FlinkJob,
    HashProfile,
    JobSpec,
    Mode,
    OperatorSpec,
    Spec,
    SubmitSpec,
    Verify,
)

__all__ = [
    "ClusterSpec",
    "DataSpec",
    "FlinkJob",
    "HashProfile",
    "JobSpec",
    "Mode",
    "OperatorSpec",
    "Spec",
    "SubmitSpec",
    "Verify",
]
