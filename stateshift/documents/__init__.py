"""The documents that `--json` prints and `api` returns: their keys carry their words.

A module a document: the facts that all views share, and its shape. `shape` makes the document and
its JSON Schema of these.
"""
