"""All questions. A new file of questions is imported here."""

from probe.questions import hooks, leaving, standby

__all__ = ["hooks", "leaving", "standby"]
