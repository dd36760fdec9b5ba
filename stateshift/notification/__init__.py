"""Who asked for it in the spec (`on`) is notified of what a run has come to, beside the run.

event     what is said: a value, and its document
outbox    what was not sent, kept for the next run
sending   one notification to one receiver: a command, or a webhook
notifier  the notifications of a run, each in a thread of its own, bounded in time
"""
