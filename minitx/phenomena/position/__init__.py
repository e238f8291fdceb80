"""Position bias: where a thing stands decides whether it is found."""
