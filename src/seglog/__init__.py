"""Apache Kafka's partition log without the broker."""

__version__ = "0.1.0"
