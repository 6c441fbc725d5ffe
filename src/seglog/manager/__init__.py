"""Many data directories at once, opened for writing: Kafka's LogManager, from start to shutdown.

Neither readers nor Spark import this.
"""
