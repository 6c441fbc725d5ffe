"""The output of `seglog dump`: kafka-dump-log's lines for every kind of file, or JSON.

`logs`, `indexes` and `snapshots` each print one kind of file. `decoders` (with `messages`,
`schemas`, `remote`) decode the records of Kafka's internal topics. `output` collects the lines.

Standard output equals Kafka's byte for byte, also for damaged files, with these exceptions:

- The dump never writes. Kafka's tool creates a missing `.index` beside a `.timeindex`, truncates a
  partial entry of an index, and reads a missing `.txnindex` as empty; here these are errors, or
  the files stay unchanged.
- The decoder classes are Kafka's String, Long and Integer decoders; any other would need a JVM.
- A message of magic 0 or 1 with a value longer than the message ends the dump with every decoder;
  Kafka's decoders of internal topics print the exception in the line.
- Doubles (client quotas) have the fewest digits that identify the value, as in Java 19 and later.
- A compressed batch beyond the cap of `storage.codecs` (512 MiB) is an error, where Kafka may run
  out of heap.
"""
