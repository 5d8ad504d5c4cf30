"""The objects of a scenario: groups, nodes, executions, and the actors on them."""
