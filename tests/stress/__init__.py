"""Threads that do anything to a log at the same time (see `mixes`)."""
