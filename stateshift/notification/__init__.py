"""Notifications of the outcome of a run, for those who asked for them in the spec (`on`).

event     a notification as a value, and its document
notifier  the notifications of a run, each in a thread of its own, bounded in time
"""
