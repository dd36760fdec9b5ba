"""`stateshift live`: functions of running jobs, changed without a restart, and state that moves in
bins. One command a file.

`buffer` changes nothing: it stands before a job.
"""

from __future__ import annotations

from stateshift.cli.shell.options import epilog

# In the order of the help.
NAMES = (
    "replace",
    "introduce",
    "remove",
    "revert",
    "move",
    "bins",
    "pause",
    "resume",
    "throttle",
    "history",
    "status",
    "abort",
    "import",
    "export",
    "evict",
    "buffer",
)

EPILOG = """\b
In a job, functions stand in a chain, which names its group's folder:
  from stateshift import live
  score = live.chain("score", "s3://live/orders", "id long, k long", add_score)
  orders.mapInArrow(score, "id long, k long")

""" + epilog(
    "stateshift live status s3://live/orders\n"
    "stateshift live replace s3://live/orders score model_v2:score --check\n"
    "stateshift live replace s3://live/orders score model_v2:score\n"
    "stateshift live revert s3://live/orders score\n"
    "stateshift live move s3://live/orders --to east --bins 0-127",
    2,
    3,
    4,
    6,
    7,
    9,
    130,
    e7="the workers did not take the change or the move: it was aborted",
    e9="decided, and not seen to be complete within --wait: running jobs carry it out",
    e130="interrupted; the message says whether the change is applied",
)


def command() -> None:
    """Change functions of running jobs, and move their state."""
