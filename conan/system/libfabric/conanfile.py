from conan import ConanFile
from conan.tools.system import package_manager

required_conan_version = ">=2.0"


class SystemLibfabric(ConanFile):
    """The machine's own libfabric. -c tools.system.package_manager:mode=install lets Conan install it."""
    name = "libfabric"
    version = "system"
    license = "BSD-2-Clause OR GPL-2.0-only"
    description = "libfabric as the system's package manager has it"
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"

    def package_id(self):
        self.info.clear()

    def system_requirements(self):
        package_manager.Apt(self).install(["libfabric-dev"], check=True)
        package_manager.Dnf(self).install(["libfabric-devel"], check=True)

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "libfabric")
        self.cpp_info.set_property("cmake_target_name", "libfabric::libfabric")
        self.cpp_info.includedirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.bindirs = []
        self.cpp_info.system_libs = ["fabric"]
