"""Kubernetes: its API server, and the operators that run jobs from its resources."""
