"""Searches without a supernet: architectures are scored and evaluated one by one."""
