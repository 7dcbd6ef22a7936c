from conan import ConanFile
from conan.tools.system import package_manager

required_conan_version = ">=2.0"


class SystemBoost(ConanFile):
    """The machine's own Boost.Test, for consumers' tests: the library itself needs no Boost."""
    name = "boost"
    version = "system"
    license = "BSL-1.0"
    description = "Boost.Test as the system's package manager has it"
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"

    def package_id(self):
        self.info.clear()

    def system_requirements(self):
        package_manager.Apt(self).install(["libboost-test-dev"], check=True)
        package_manager.Dnf(self).install(["boost-devel"], check=True)

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "Boost")
        for component, libraries in {"headers": [], "unit_test_framework": ["boost_unit_test_framework"]}.items():
            info = self.cpp_info.components[component]
            info.set_property("cmake_target_name", f"Boost::{component}")
            info.includedirs = []
            info.libdirs = []
            info.bindirs = []
            info.system_libs = libraries
        self.cpp_info.components["unit_test_framework"].defines = ["BOOST_TEST_DYN_LINK"]
