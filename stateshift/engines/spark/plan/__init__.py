"""The work that moves a job, as phases of steps: computed from spec and facts. Pure."""
