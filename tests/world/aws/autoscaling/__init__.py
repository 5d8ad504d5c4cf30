"""Auto Scaling."""
