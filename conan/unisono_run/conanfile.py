import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, cmake_layout
from conan.tools.files import copy, load

required_conan_version = ">=2.0"


class UnisonoRunConan(ConanFile):
    name = "unisono-run"
    license = "Apache-2.0"
    description = "Starts the ranks of a job on this machine; and compares two runs' logs of hashes"
    package_type = "application"
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "CMakeToolchain"

    def set_version(self):
        header = load(self, os.path.join(self.recipe_folder, "..", "..", "include", "unisono", "core", "version.hpp"))
        parts = [re.search(rf"#\s*define\s+UNISONO_VERSION_{part}\s+(\d+)", header)
                 for part in ("MAJOR", "MINOR", "PATCH")]
        self.version = ".".join(part.group(1) for part in parts)

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..", "..")
        copy(self, "LICENSE", root, self.export_sources_folder)
        for pattern in ("*.cpp", "*.hpp"):
            copy(self, pattern, os.path.join(root, "tools"), os.path.join(self.export_sources_folder, "tools"))
        copy(self, "CMakeLists.txt", self.recipe_folder, self.export_sources_folder)

    def requirements(self):
        self.requires(f"unisono/{self.version}")
        self.requires("cli11/[>=2.1]")

    def package_id(self):
        self.info.requires.full_version_mode()  # the program is the same for whoever has an editable unisono of this version

    def layout(self):
        cmake_layout(self)

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()

    def package_info(self):
        self.cpp_info.includedirs = []
        self.cpp_info.libdirs = []
