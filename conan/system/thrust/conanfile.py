import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.system import package_manager

required_conan_version = ">=2.0"


class SystemThrust(ConanFile):
    """The machine's own Thrust, for sources that a host's compiler compiles: of a CUDA toolkit (CCCL), or Debian's libthrust-dev, which
    needs no CUDA. -c tools.system.package_manager:mode=install lets Conan install the latter."""
    name = "thrust"
    version = "system"
    license = "Apache-2.0"
    description = "Thrust as a CUDA toolkit or the system's package manager has it"
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    # Where thrust::device is: on one thread, on those of OpenMP, or of TBB.
    options = {"prefix": ["ANY"], "device_system": ["CPP", "OMP", "TBB"]}
    default_options = {"prefix": "/usr/local/cuda", "device_system": "CPP"}

    def package_id(self):
        self.info.settings.clear()

    def _folder(self):
        for folder in ("include/cccl", "include"):
            path = os.path.join(str(self.options.prefix), folder)
            if os.path.exists(os.path.join(path, "thrust/version.h")):
                return path
        return "/usr/include" if os.path.exists("/usr/include/thrust/version.h") else None

    def system_requirements(self):
        if self._folder() is None:
            package_manager.Apt(self).install(["libthrust-dev"], check=True)
        if self.options.device_system == "TBB":
            package_manager.Apt(self).install(["libtbb-dev"], check=True)

    def package_info(self):
        found = self._folder()
        if found is None:
            raise ConanInvalidConfiguration(f"thrust/system: neither {self.options.prefix} (option prefix) nor /usr/include has "
                                            "thrust/version.h")
        self.cpp_info.set_property("cmake_file_name", "thrust")
        self.cpp_info.set_property("cmake_target_name", "thrust::thrust")
        self.cpp_info.includedirs = [] if found == "/usr/include" else [found]
        self.cpp_info.libdirs = []
        self.cpp_info.bindirs = []
        self.cpp_info.defines = ["THRUST_HOST_SYSTEM=THRUST_HOST_SYSTEM_CPP",
                                 f"THRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_{self.options.device_system}"]
        if self.options.device_system == "OMP":
            self.cpp_info.cxxflags = ["-fopenmp"]
            self.cpp_info.sharedlinkflags = self.cpp_info.exelinkflags = ["-fopenmp"]
        elif self.options.device_system == "TBB":
            self.cpp_info.system_libs = ["tbb"]
