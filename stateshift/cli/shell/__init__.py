"""The parts that all commands share: the entry, settings, options, the terminal, errors and
progress.
"""
