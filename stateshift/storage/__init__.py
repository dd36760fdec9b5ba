"""Storages, where bytes live: the protocol, its wrappers, and the storages that keep it."""
