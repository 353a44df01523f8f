"""The CPU kernels: C++ behind a plain C interface, and their equals in plain torch."""
