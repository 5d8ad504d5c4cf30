"""What a scenario has in hand: groups, nodes, executions, and who acts on them."""
