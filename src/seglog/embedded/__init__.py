"""A log inside of a program: `seglog.open`."""
