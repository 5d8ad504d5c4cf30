"""The questions, by topic. `probe/__main__.py` imports each file."""
