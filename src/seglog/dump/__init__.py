"""What `seglog dump` prints: kafka-dump-log's lines for every kind of file, and the same as JSON.

`logs`, `indexes` and `snapshots` each print one kind; `decoders` (with `messages`, `schemas`,
`remote`) open the records of Kafka's internal topics; `output` is where all of it goes.

Standard output is Kafka's byte for byte, also of damaged files, with these exceptions:

- Nothing is ever written. Kafka's tool makes a missing `.index` beside a `.timeindex`, cuts odd
  bytes off an index, and takes a missing `.txnindex` for an empty one; here all three are errors
  or stay as they are.
- Decoder classes other than Kafka's String, Long and Integer decoders would need a JVM.
- A message of magic 0 or 1 whose value is longer than the message ends the dump under every
  decoder; Kafka's decoders of internal topics put the exception into the line.
- Doubles (client quotas) have the fewest digits that tell them, as Java from 19 on prints them.
- A compressed batch beyond the cap of `storage.codecs` (512 MiB) is an error, as is running out of
  heap in Kafka.
"""
