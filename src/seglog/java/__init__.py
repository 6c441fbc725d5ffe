"""What only mimics Java: its numbers, properties files, hash order and printed text."""
