"""Entries, export and differences for whoever looks at an image. Reads only."""
