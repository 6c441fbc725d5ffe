"""One partition's log, opened for writing: every operation of Kafka's UnifiedLog."""
