"""Sequences of operations through Kafka's UnifiedLog and through seglog's: the same results, the
same exceptions by name, the same files. The lines are those of tests/kafka/Driver.java."""
