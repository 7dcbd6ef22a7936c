import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.files import copy, load
from conan.tools.layout import basic_layout

required_conan_version = ">=2.0"


class UnisonoConan(ConanFile):
    name = "unisono"
    license = "Apache-2.0"
    description = "Composable collectives and training policies for data-parallel training, header-only"
    topics = ("collectives", "all-reduce", "training", "data-parallel", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    def set_version(self):
        header = load(self, os.path.join(self.recipe_folder, "..", "include", "unisono", "core", "version.hpp"))
        parts = [re.search(rf"#\s*define\s+UNISONO_VERSION_{part}\s+(\d+)", header)
                 for part in ("MAJOR", "MINOR", "PATCH")]
        self.version = ".".join(part.group(1) for part in parts)

    def export_sources(self):
        root = os.path.join(self.recipe_folder, "..")
        copy(self, "LICENSE", root, self.export_sources_folder)
        copy(self, "*.hpp", os.path.join(root, "include"), os.path.join(self.export_sources_folder, "include"))

    def layout(self):
        basic_layout(self)

    def package_id(self):
        self.info.clear()

    def validate(self):
        check_min_cppstd(self, 20)

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        copy(self, "*.hpp", os.path.join(self.source_folder, "include"), os.path.join(self.package_folder, "include"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "Unisono")
        self.cpp_info.set_property("cmake_target_name", "unisono::unisono")
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]
