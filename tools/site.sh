#!/usr/bin/env bash
# Builds one site of all pages and of the reference:
#     bash tools/site.sh [--folder FOLDER] [--serve [PORT]]
# The search needs a server: --serve starts one on 127.0.0.1, by default on port 8000. The script
# installs Doxygen if it is missing, and mkdocs-material in a virtual environment. All that it
# writes is in FOLDER, by default build/site. It fails if a link leads nowhere.
set -euo pipefail
folder=
if [ "${1:-}" = --folder ] && [ -n "${2:-}" ]; then folder=$(realpath -m -- "$2"); shift 2; fi
cd "$(dirname "$0")/.."
. tools/install_missing.sh
[ $# = 0 ] || [ "$1" = --serve ] || { echo "usage: bash $0 [--folder FOLDER] [--serve [PORT]]; found '$*'" >&2; exit 2; }
folder=${folder:-$PWD/build/site}
install_missing python venv doxygen
install_python_packages "$folder/venv" material=mkdocs-material==9.8.2
python3 tools/site/stage.py "$folder"
NO_MKDOCS_2_WARNING=1 "$folder/venv/bin/mkdocs" build --strict --quiet --config-file "$folder/mkdocs.yml"
python3 tools/site/dead_links.py "$folder/html"
echo "$folder/html/index.html"
[ $# = 0 ] || exec python3 -m http.server --bind 127.0.0.1 --directory "$folder/html" "${2:-8000}"
