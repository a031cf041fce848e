"""What an operator is: the record class and its registry, signature, attributes, types and shapes; how records run."""
