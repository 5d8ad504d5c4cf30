"""The AWS account."""

from world.aws import model_files

# Before moto, which reads the models of EC2 when it is imported.
model_files.install()
