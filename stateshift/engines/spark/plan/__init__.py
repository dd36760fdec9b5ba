"""What is done to move a job, as phases of steps: computed from spec and facts. Pure."""
