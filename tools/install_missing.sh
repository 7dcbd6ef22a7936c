# shellcheck shell=bash
# Source this file. `install_missing WHAT...` makes sure that each named thing is installed. On
# Debian and its relatives it installs the packages of missing things. If nothing is missing, it
# calls no package manager and uses no network. `install_python_packages FOLDER PACKAGE...` does the
# same for packages of PyPI, in a virtual environment of its own. `install_optional` and
# `install_optional_python` never fail. They print a line about what is left out, and one
# unavailable package does not prevent the others.

have_header() { printf '#include <%s>\n' "$1" | c++ -std=c++20 -E -x c++ - >/dev/null 2>&1; }

is_present() {
    case $1 in
        compiler) command -v c++ && printf 'int main() {}' | c++ -std=c++20 -fsyntax-only -x c++ - ;;
        clang) command -v clang++ && ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.tsan-* ;;
        build) command -v cmake && command -v ninja ;;
        python) command -v python3 ;;
        venv) python3 -c 'import venv, ensurepip' ;;
        yaml) python3 -c 'import yaml' ;;
        boost_test) # libboost-dev has the headers alone
            have_header boost/test/unit_test.hpp && printf 'int main() {}' | c++ -x c++ - -lboost_unit_test_framework -o /dev/null ;;
        json) have_header nlohmann/json.hpp ;;
        cli11) have_header CLI/CLI.hpp ;;
        ccache) command -v ccache ;;
        format) command -v "${CLANG_FORMAT:-clang-format-16}" ;;
        tidy) command -v clang-tidy ;;
        doxygen) command -v doxygen ;;
        codespell) command -v codespell ;;
        openmpi) command -v mpicxx.openmpi && command -v mpirun.openmpi ;;
        mpich) command -v mpicxx.mpich && command -v mpirun.mpich ;;
        libfabric) have_header rdma/fabric.h && printf 'int main() {}' | c++ -x c++ - -lfabric -o /dev/null ;;
        iproute2) PATH=$PATH:/usr/sbin:/sbin command -v ip && PATH=$PATH:/usr/sbin:/sbin command -v tc ;;
        nft) PATH=$PATH:/usr/sbin:/sbin command -v nft ;;
        slurm) PATH=$PATH:/usr/sbin:/sbin command -v slurmctld && command -v srun && PATH=$PATH:/usr/sbin:/sbin command -v munged ;;
        thrust) have_header thrust/version.h || [ -f /usr/local/cuda/include/cccl/thrust/version.h ] ;;
        tbb) have_header tbb/tbb.h ;;
        pkg_config) command -v pkg-config ;;
        eigen) [ -d /usr/include/eigen3 ] ;;
        dlib) have_header dlib/optimization.h && printf 'int main() {}' | c++ -x c++ - -lblas -o /dev/null ;;
        clang19) command -v clang++-19 ;;
        lld) command -v ld.lld ;;
        asio) have_header asio.hpp ;;
        fmt) have_header fmt/format.h ;;
        gloo) have_header gloo/rendezvous/file_store.h && printf 'int main() {}' | c++ -x c++ - -lgloo -o /dev/null ;;
        *) echo "install_missing: unknown name '$1'" >&2; return 1 ;;
    esac >/dev/null 2>&1
}

packages_of() {
    case $1 in
        compiler) echo g++ ;;
        clang) echo clang libclang-rt-14-dev ;;
        build) echo cmake ninja-build ;;
        python) echo python3 ;;
        venv) echo python3-venv ;;
        yaml) echo python3-yaml ;;
        boost_test) echo libboost-test-dev ;;
        json) echo nlohmann-json3-dev ;;
        cli11) echo libcli11-dev ;;
        ccache) echo ccache ;;
        format) echo clang-format-16 ;;
        tidy) echo clang-tidy ;;
        doxygen) echo doxygen ;;
        codespell) echo codespell ;;
        openmpi) echo libopenmpi-dev openmpi-bin ;;
        mpich) echo libmpich-dev mpich ;;
        libfabric) echo libfabric-dev ;;
        iproute2) echo iproute2 ;;
        nft) echo nftables ;;
        slurm) echo slurm-wlm munge ;;
        thrust) echo libthrust-dev ;;
        tbb) echo libtbb-dev ;;
        pkg_config) echo pkg-config ;;
        eigen) echo libeigen3-dev ;;
        dlib) echo libdlib-dev libblas-dev ;;
        clang19) echo clang-19 ;;
        lld) echo lld ;;
        asio) echo libasio-dev ;;
        fmt) echo libfmt-dev ;;
        gloo) echo libgloo-dev libhiredis-dev ;;
    esac
}

install_missing() {
    local thing packages=() missing=()
    for thing in "$@"; do
        is_present "$thing" || { missing+=("$thing"); read -ra more < <(packages_of "$thing"); packages+=("${more[@]}"); }
    done
    [ ${#missing[@]} = 0 ] && return 0
    local as_root=()
    if [ "$(id -u)" != 0 ]; then as_root=(sudo); [ -t 0 ] || as_root+=(-n); fi # without a terminal nobody can type a password
    if ! command -v apt-get >/dev/null || { [ ${#as_root[@]} != 0 ] && ! command -v sudo >/dev/null; }; then
        echo "missing: ${missing[*]}; on Debian as root: apt-get install ${packages[*]}" >&2
        return 1
    fi
    echo "installing: ${packages[*]}"
    local log
    log=$(mktemp)
    if ! { "${as_root[@]}" apt-get update -q &&
           "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
               "${packages[@]}"; } >"$log" 2>&1; then
        cat "$log" >&2
        rm -f "$log"
        return 1
    fi
    rm -f "$log"
    for thing in "${missing[@]}"; do
        is_present "$thing" || { echo "'$thing' is still missing after apt-get install ${packages[*]}" >&2; return 1; }
    done
}

# Packages. MODULE=PACKAGE if the import name differs.
install_python_packages() {
    local folder=$1 package
    shift
    for package in "$@"; do
        "$folder/bin/python3" -I -c "import ${package%%=*}" >/dev/null 2>&1 && continue # -I: not from a folder of that name here
        install_missing python venv
        echo "installing into $folder: $*"
        python3 -m venv "$folder" && "$folder/bin/python3" -m pip install -q --disable-pip-version-check --retries 1 "${@#*=}"
        return
    done
}

# Whether apt knows all packages of a thing.
is_known() {
    local package
    for package in $(packages_of "$1"); do apt-cache show "$package" >/dev/null 2>&1 || return 1; done
}

install_optional() {
    local thing absent=() known=()
    install_missing "$@" >&2 && return 0
    for thing in "$@"; do
        is_present "$thing" || { absent+=("$thing"); if is_known "$thing"; then known+=("$thing"); fi; }
    done
    if [ ${#known[@]} != 0 ] && [ ${#known[@]} != ${#absent[@]} ]; then
        install_missing "${known[@]}" >&2 || true
        absent=()
        for thing in "$@"; do is_present "$thing" || absent+=("$thing"); done
    fi
    if [ ${#absent[@]} != 0 ]; then echo "left out, because it could not be installed: ${absent[*]}"; fi
}

install_optional_python() {
    local folder=$1 package absent=() log
    log=$(mktemp)
    if install_python_packages "$@" 2>"$log"; then
        rm -f "$log"
        return 0
    fi
    cat "$log" >&2
    for package in "${@:2}"; do
        "$folder/bin/python3" -I -c "import ${package%%=*}" >/dev/null 2>&1 && continue
        # One by one, unless no registry answers.
        if ! grep -q 'Retrying (' "$log" && install_python_packages "$folder" "$package"; then continue; fi
        absent+=("$package")
    done
    rm -f "$log"
    if [ ${#absent[@]} != 0 ]; then echo "left out, because pip could not install it: ${absent[*]}"; fi
}
