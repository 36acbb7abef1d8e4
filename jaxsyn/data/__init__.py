"""What a sentence is: trees, alignment, vocabulary, records, batches."""
