"""Examples are many and small; how long one takes says nothing on a machine that is shared."""

from hypothesis import settings

settings.register_profile("formats", deadline=None)
settings.load_profile("formats")
