"""The files of one partition, and the read-only log over them."""
