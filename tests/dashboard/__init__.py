"""The module's CloudWatch dashboard, drawn from what the functions of a run on the local world counted.

python -m dashboard     runs three days of a group's life and writes docs/dashboard.svg
"""
