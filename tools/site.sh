#!/usr/bin/env bash
# Builds one site of all pages and of the reference: bash tools/site.sh [--serve [PORT]]
# The search needs a server: --serve starts one on 127.0.0.1, by default on port 8000. The script
# installs Doxygen if it is missing, and mkdocs-material in a virtual environment under build/site.
# It fails if a link leads nowhere.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/install_missing.sh
[ $# = 0 ] || [ "$1" = --serve ] || { echo "usage: bash $0 [--serve [PORT]]; found '$*'" >&2; exit 2; }
install_missing python venv doxygen
install_python_packages build/site/venv material=mkdocs-material~=9.5
python3 tools/site/stage.py build/site
NO_MKDOCS_2_WARNING=1 build/site/venv/bin/mkdocs build --strict --quiet --config-file build/site/mkdocs.yml
python3 tools/site/dead_links.py build/site/html
echo "build/site/html/index.html"
[ $# = 0 ] || exec python3 -m http.server --bind 127.0.0.1 --directory build/site/html "${2:-8000}"
