"""What would become of the rows that wait; nothing is written."""
