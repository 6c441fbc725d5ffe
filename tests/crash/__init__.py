"""What a killed writer, or one whose power was cut, leaves of the log that it wrote."""
