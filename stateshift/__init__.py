"""stateshift: move the state of running streaming jobs from one cluster to another.

The way of the data:

    spec.json ──parse_spec──▶ Spec ──┐
                                     ├──engine.plan──▶ Plan ──execute──▶ Records ──fold──▶ Progress
                                     ──▶ Report
    source, target, clusters ─▶ Facts ┘                (World)         (Journal)

Imports point down; modules on one row do not import each other:

    cli
    api
    migration, look, job, live
    executor, report, fleet, workdir, lock, estimating, logs
    engines, dataflow
    journal, plan, steering
    step
    world
    storage, clusters, sources, machine
    formats, specification, survey
    errors, plain, private_files, suggestion, terms

Words: a *job* has an *image* (its whole state at one *epoch*, as files) at a *location*. A *spec*
says what is wanted, a *survey* what is there, a *plan* what will be done: *phases* of *steps*. What
was done stands in the *journal*, with the *evidence* each step produced. To *publish* is to write
last the files an engine reads first; to *fence* is to keep the old job from ever committing again.
"""

__version__ = "0.1.0"


def leave_logging_to_the_program() -> None:
    """Let whoever embeds the package decide what becomes of its log records: without this, Python
    would write warnings to stderr where nobody has decided. Help waits for no logging.
    """
    import logging

    logger = logging.getLogger(__name__)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
