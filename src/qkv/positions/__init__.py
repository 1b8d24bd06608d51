"""Position schemes: sinusoidal, learned, rotary and its scalings, ALiBi and relative biases."""
