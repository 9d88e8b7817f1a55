"""PTX text: the lexer, the parser, and the writer."""
