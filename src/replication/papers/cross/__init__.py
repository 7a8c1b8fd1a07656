"""The cross table: families of models, each put to the tests of all four papers."""
