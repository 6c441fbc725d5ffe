"""The files of one partition, and the log that they make."""
