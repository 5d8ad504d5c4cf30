"""Virtual time, and what goes wrong: every other room uses them."""
