"""All questions. A new file of questions is imported here."""

from probe.questions import standby

__all__ = ["standby"]
