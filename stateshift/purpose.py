"""The purposes of plans: what a plan does with its job.

aside    what is at its target is set aside, while the job runs
warm     a round of copying, while the job runs
standby  an image that can be started from, made of what rounds have copied
halt     the job stops
move     its image is copied to the target, and it starts there
start    a first deployment
"""

from __future__ import annotations

from typing import Literal

Purpose = Literal["aside", "warm", "standby", "halt", "move", "start"]
WHILE_IT_RUNS: tuple[Purpose, ...] = ("aside", "warm", "standby")
