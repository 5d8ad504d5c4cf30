"""All questions. A new file of questions is imported here."""

from probe.questions import events, hooks, leaving, spot, standby

__all__ = ["events", "hooks", "leaving", "spot", "standby"]
