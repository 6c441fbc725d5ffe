"""Tiering of a LogManager."""
