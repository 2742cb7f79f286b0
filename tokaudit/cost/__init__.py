"""What a vocabulary costs: its tables and logits in memory, and the length of the text it makes."""
