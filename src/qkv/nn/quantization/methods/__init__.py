"""Methods that choose the codes of a matrix, one a file: rtn, gptq, awq."""
