"""The same plans spread over Spark's executors, for state that outgrows one machine; or over
processes of this machine, so that all of its cores share the work.

    driver                                                     executor
    step ──encode_order──▶ order ──Carrier──▶ one Spark task ──▶ carry_out: opens the world,
                                                                 step.run(world)
    evidence, or the error ◀──decode_answer── answer ◀──────────────┘

The driver alone writes the journal and touches clusters; to Spark a step is one task, and results
come one by one. The plan is the same with and without a fleet, so are its evidence and the bytes it
leaves.
"""

from stateshift.fleet.carrier import Carrier, Lost
from stateshift.fleet.crew import Crew
from stateshift.fleet.masters import check_places, kind_of

__all__ = ["Carrier", "Crew", "Lost", "check_places", "kind_of"]
