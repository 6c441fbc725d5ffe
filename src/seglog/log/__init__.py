"""One partition's log, opened for writing: every operation that Kafka's UnifiedLog has."""
