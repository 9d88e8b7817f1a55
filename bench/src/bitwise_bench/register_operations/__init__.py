"""Register operations of PTX on a GPU: one recorded result for each form of an opcode and each case of its operands."""
