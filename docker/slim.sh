#!/bin/sh
# Take out of an environment what only builds and tests of its packages need: torch's headers and test programs, and the
# tests of scientific packages.
#
#   docker/slim.sh ENVIRONMENT
set -eu
for packages in "$1"/lib/python3.*/site-packages; do
  rm -rf "$packages/torch/include" "$packages/torch/test"
  find "$packages/torch/bin" -type f ! -name torch_shm_manager -delete
  for package in numpy scipy sklearn sympy networkx joblib; do
    find "$packages/$package" -type d -name tests -prune -exec rm -rf {} +
  done
done
