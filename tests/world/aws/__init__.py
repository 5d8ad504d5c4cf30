"""The AWS account."""
