"""What can go wrong with a server, by what to do about it.

Fault
  Unavailable  something it is made of cannot be had here; a test that needs it is skipped with this
               reason
  Failed       it was started and did not come up; the end of its log is in the message
    PortTaken  because somebody else has one of its ports: it is started again with others
"""

from __future__ import annotations


class Fault(Exception):
    pass


class Unavailable(Fault):
    pass


class Failed(Fault):
    pass


class PortTaken(Failed):
    pass
