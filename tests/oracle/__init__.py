"""The second opinion: Kafka's bytes in slow, plain Python, from the format reference alone.

Nothing here imports seglog, and seglog never imports this.
"""
