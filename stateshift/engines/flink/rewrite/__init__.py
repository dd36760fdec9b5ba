"""Metadata and state written for another place, parallelism or job: which, and how. Pure."""
