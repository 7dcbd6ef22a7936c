#!/usr/bin/env bash
# Writes the reference of all that is public to build/reference/html: bash docs/reference/build.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/install_missing.sh
install_missing doxygen
mkdir -p build/reference
doxygen docs/reference/Doxyfile
echo "build/reference/html/index.html"
