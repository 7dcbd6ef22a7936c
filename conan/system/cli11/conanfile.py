from conan import ConanFile
from conan.tools.system import package_manager

required_conan_version = ">=2.0"


class SystemCli11(ConanFile):
    """The machine's own CLI11, for unisono-run: the library itself needs no CLI11. ConanCenter has the same name with versions."""
    name = "cli11"
    version = "2.1.2"
    license = "BSD-3-Clause"
    description = "CLI11 as the system's package manager has it"
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"

    def package_id(self):
        self.info.clear()

    def system_requirements(self):
        package_manager.Apt(self).install(["libcli11-dev"], check=True)
        package_manager.Dnf(self).install(["cli11-devel"], check=True)

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "CLI11")
        self.cpp_info.set_property("cmake_target_name", "CLI11::CLI11")
        self.cpp_info.includedirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.bindirs = []
