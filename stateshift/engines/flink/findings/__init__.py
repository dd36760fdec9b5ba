"""Everything that a person should know before a job moves: refusals, warnings, notes. Pure."""
