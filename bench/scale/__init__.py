"""Training on two ranks of one thread beside one rank of two threads: speed, and memory beside what is predicted."""
