"""The output of a run on the local world: the module's CloudWatch dashboard as a picture, and a message of each kind.

make dashboard     runs two days of two groups' life, and writes docs/dashboard.svg and docs/messages.md
"""
