"""Step Functions: an interpreter of state machines."""
