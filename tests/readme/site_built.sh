#!/usr/bin/env bash
# Builds the site, which fails if a link leads nowhere. Skipped without Doxygen, or if pip cannot
# install mkdocs-material.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/install_missing.sh
is_present doxygen || { echo "skipped: no doxygen"; exit 77; }
out=$(install_optional_python build/site/venv material=mkdocs-material~=9.5)
case $out in *"left out"*) echo "skipped: $out"; exit 77 ;; esac
exec bash tools/site.sh
