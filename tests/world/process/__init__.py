"""Programs, folders and servers of this machine."""
