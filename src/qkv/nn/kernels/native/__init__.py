"""C++ kernels for CPUs and the functions that call them, one kernel a file, beside what loads them and their structures."""
