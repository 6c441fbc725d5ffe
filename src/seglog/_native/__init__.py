"""The only door to native code. Private: everything public is re-exported by `seglog`."""
