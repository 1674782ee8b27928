"""The command line: a module a subcommand, whose docstring is its help. Only this layer prints."""
