"""SWEET-RL on memory episodes: long talks in a small window, with questions at their end. See the folder's README."""
