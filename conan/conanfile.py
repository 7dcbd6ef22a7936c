import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import copy, load
from conan.tools.scm import Version

required_conan_version = ">=2.0"


class UnisonoConan(ConanFile):
    name = "unisono"
    license = "Apache-2.0"
    description = "Composable collectives and training policies for data-parallel training, header-only"
    topics = ("collectives", "all-reduce", "training", "data-parallel", "header-only")
    package_type = "library"  # of headers by default
    settings = "os", "arch", "compiler", "build_type"
    # What needs a third party's library (transports, and arithmetic by Thrust), each a target of its own beside unisono::unisono, and that
    # library's recipe, which is in system/.
    third_parties = {"cuda": "cudart", "libfabric": "libfabric", "mpi": "mpi", "nccl": "nccl", "thrust": "thrust"}
    # Those that need no third party, as in cmake/UnisonoExtensions.cmake: a name each for the same headers.
    extensions = ("any", "any_group", "automatic", "checkpoint", "compression", "elastic", "hosts", "join", "join_any", "laboratory",
                  "launch", "master_weights", "observe", "parallel", "reducers", "reproducible", "sharded", "simulate",
                  "simulate_elastic", "tcp", "trainers", "transports", "updates")
    # header_only=False adds the library of the compiled mode, unisono::compiled, and with devices=True unisono::devices, which nvcc compiles.
    options = {"header_only": [True, False], "shared": [True, False], "devices": [True, False], **{component: [True, False] for component in third_parties}}
    default_options = {"header_only": True, "shared": False, "devices": False, **{component: False for component in third_parties}}
    no_copy_source = True

    def set_version(self):
        header = load(self, os.path.join(self.recipe_folder, "..", "include", "unisono", "core", "version.hpp"))
        parts = [re.search(rf"#\s*define\s+UNISONO_VERSION_{part}\s+(\d+)", header)
                 for part in ("MAJOR", "MINOR", "PATCH")]
        self.version = ".".join(part.group(1) for part in parts)

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..")
        for files in ("LICENSE", "CMakeLists.txt", "cmake/*", "src/*", "include/*.hpp", "include/*.h"):
            copy(self, files, root, self.export_sources_folder)

    def configure(self):
        if self.options.header_only:
            self.options.rm_safe("shared")

    def layout(self):
        self.folders.root = ".."  # of the repository: an editable package is used where it lies
        self.folders.source = "."
        self.folders.build = os.path.join("build", "conan")
        self.folders.generators = self.folders.build
        for component in ("core", *self.third_parties):
            self.cpp.source.components[component].includedirs = ["include"]

    def requirements(self):
        for component, library in self.third_parties.items():
            if self.options.get_safe(component) or component == "cuda" and self.options.devices:
                version = "[>=1.17 || system]" if library == "libfabric" else "system"
                self.requires(f"{library}/{version}", transitive_headers=True)

    def package_id(self):
        if self.info.options.header_only:
            self.info.clear()

    def generate(self):
        if not self.options.header_only:
            toolchain = CMakeToolchain(self)
            for part in ("TESTS", "EXAMPLES", "BENCH", "TOOLS"):
                toolchain.cache_variables[f"UNISONO_BUILD_{part}"] = False
            toolchain.cache_variables["UNISONO_INSTALL"] = False
            toolchain.cache_variables["UNISONO_DEVICES"] = bool(self.options.devices)
            toolchain.generate()

    def build(self):
        if not self.options.header_only:
            cmake = CMake(self)
            cmake.configure()
            cmake.build(target="unisono_compiled")
            if self.options.devices:
                cmake.build(target="unisono_devices")

    def validate(self):
        check_min_cppstd(self, 20)
        if self.options.devices and self.options.header_only:
            raise ConanInvalidConfiguration("devices=True is a library that nvcc compiles: it needs header_only=False")
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration(f"Unisono needs Linux, found {self.settings.os}")
        oldest = {"gcc": "12", "clang": "14"}.get(str(self.settings.compiler))
        if oldest is None or Version(self.settings.compiler.version) < oldest:
            raise ConanInvalidConfiguration("Unisono needs g++ 12, clang 14 or newer, found "
                                            f"{self.settings.compiler} {self.settings.compiler.version}")

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        for files in ("*.hpp", "*.h"):
            copy(self, files, os.path.join(self.source_folder, "include"), os.path.join(self.package_folder, "include"))
        copy(self, "libunisono*.*", self.build_folder, os.path.join(self.package_folder, "lib"), keep_path=False)

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "unisono")  # as find_package(Unisono) and find_package(unisono) look for it
        self.cpp_info.set_property("cmake_target_name", "unisono::all")
        self.cpp_info.set_property("pkg_config_name", "unisono-all")
        for component in ("core", *self.third_parties):
            needed = component == "cuda" and self.options.devices
            if component != "core" and not needed and not self.options.get_safe(component):
                continue
            info = self.cpp_info.components[component]
            info.set_property("cmake_target_name", "unisono::unisono" if component == "core" else f"unisono::{component}")
            info.set_property("pkg_config_name", "unisono" if component == "core" else f"unisono-{component}")
            info.bindirs = []
            info.libdirs = []
            if component != "core":
                library = self.third_parties[component]
                info.requires = ["core", f"{library}::{library}"]
        core = self.cpp_info.components["core"]
        core.set_property("cmake_target_aliases", [f"unisono::{name}" for name in ("core", *self.extensions)])
        core.system_libs = ["pthread"]
        if not self.options.header_only:
            compiled = self.cpp_info.components["compiled"]
            compiled.set_property("cmake_target_name", "unisono::compiled")
            compiled.set_property("pkg_config_name", "unisono-compiled")
            compiled.requires = ["core"]
            compiled.bindirs = []
            compiled.libs = ["unisono"]
            compiled.defines = ["UNISONO_COMPILED"]
        if self.options.devices:
            devices = self.cpp_info.components["devices"]
            devices.set_property("cmake_target_name", "unisono::devices")
            devices.set_property("pkg_config_name", "unisono-devices")
            devices.requires = ["cuda"]
            devices.bindirs = []
            devices.libs = ["unisono_devices"]
            devices.defines = ["UNISONO_DEVICES"]
