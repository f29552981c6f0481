"""What has arrived, and how to read it."""
