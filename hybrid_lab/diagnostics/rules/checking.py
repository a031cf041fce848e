"""What a rule sees of the code it looks at: the linter's side of the contract, as types."""
