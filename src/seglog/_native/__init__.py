"""The only door to native code. Private: everything public is re-exported by `seglog`."""

import logging

# Kafka's messages are for programs that configure logging. `seglog --help` imports no native
# module and saves the 15 ms that logging takes; a log, a load and a reader import one.
logging.getLogger("seglog").addHandler(logging.NullHandler())
