"""Which operators must change together, and how a running dataflow is brought to do it. Pure."""
