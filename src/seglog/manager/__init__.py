"""Many data directories at once, opened for writing: what Kafka's LogManager does at start and end.

Reference section 8. Nothing of this is imported by readers or by Spark.
"""
