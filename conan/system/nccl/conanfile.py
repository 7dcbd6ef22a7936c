import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration

required_conan_version = ">=2.0"


class SystemNccl(ConanFile):
    """The machine's own NCCL and CUDA runtime, below one prefix. No package manager of Debian's has them: nothing is installed."""
    name = "nccl"
    version = "system"
    license = "BSD-3-Clause"
    description = "NCCL and the CUDA runtime, where a CUDA toolkit has put them"
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"prefix": ["ANY"]}
    default_options = {"prefix": "/usr/local/cuda"}

    def package_id(self):
        self.info.settings.clear()

    def _folder_of(self, *names):
        for folder in ("include", "lib64", "lib"):
            path = os.path.join(str(self.options.prefix), folder)
            if all(os.path.exists(os.path.join(path, name)) for name in names):
                return path
        raise ConanInvalidConfiguration(f"nccl/system: no folder of {self.options.prefix} has {' and '.join(names)} "
                                        "(option prefix names another)")

    def validate(self):
        self._folder_of("nccl.h", "cuda_runtime_api.h")
        self._folder_of("libnccl.so", "libcudart.so")

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "nccl")
        self.cpp_info.set_property("cmake_target_name", "nccl::nccl")
        self.cpp_info.includedirs = [self._folder_of("nccl.h", "cuda_runtime_api.h")]
        self.cpp_info.libdirs = [self._folder_of("libnccl.so", "libcudart.so")]
        self.cpp_info.bindirs = []
        self.cpp_info.system_libs = ["nccl", "cudart"]
