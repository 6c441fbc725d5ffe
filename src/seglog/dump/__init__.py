"""What `seglog dump` prints: kafka-dump-log's lines for every kind of file, and the same as JSON.

`logs`, `indexes` and `snapshots` each print one kind; `decoders` (with `messages`, `schemas`,
`remote`) open the records of Kafka's internal topics; `output` is where all of it goes.
"""
