"""Formats on disk: bytes to values and back, without paths, storages or clocks."""
