"""Bins and functions that change while jobs run. So far its protocol, which is pure: `protocol`."""
