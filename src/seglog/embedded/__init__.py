"""A log inside a program: `seglog.open`."""
