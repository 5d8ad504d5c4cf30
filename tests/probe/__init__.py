"""Asks an AWS account what its documentation leaves open: `make probe`."""
