#!/usr/bin/env bash
# Builds the site, which fails if a link leads nowhere: bash site_built.sh FOLDER
# Skipped without Doxygen, without the repository, which lists the pages, if FOLDER cannot be
# written, or if pip cannot install mkdocs-material.
set -euo pipefail
folder=$1
cd "$(dirname "$0")/../../.."
. tools/install_missing.sh
skip() { echo "skipped: $1"; exit 77; }
is_present doxygen || skip "no doxygen"
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || skip "no repository of git"
mkdir -p "$folder" 2>/dev/null && [ -w "$folder" ] || skip "$folder cannot be written"
package=$(sed -n 's/^install_python_packages .* //p' tools/site.sh)
out=$(install_optional_python "$folder/venv" "$package")
case $out in *"left out"*) skip "$out" ;; esac
bash tools/site.sh --folder "$folder"
# What a reader finds: a page's sentence, and a name of the reference.
index=$(find "$folder" -name search_index.json | head -1)
for words in 'Where two worlds can happen' 'start_all_reduce'; do
    grep -q "$words" "$index" || { echo "search does not find '$words' in '$index'"; exit 1; }
done
