import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration

required_conan_version = ">=2.0"


class SystemCudart(ConanFile):
    """The machine's own CUDA runtime, below one prefix. It comes with NVIDIA's toolkit: nothing is installed."""
    name = "cudart"
    version = "system"
    license = "LicenseRef-NVIDIA-CUDA-Toolkit"
    description = "The CUDA runtime, where a CUDA toolkit has put it"
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"prefix": ["ANY"]}
    default_options = {"prefix": "/usr/local/cuda"}

    def package_id(self):
        self.info.settings.clear()

    def _folder_of(self, name):
        for folder in ("include", "lib64", "lib"):
            path = os.path.join(str(self.options.prefix), folder)
            if os.path.exists(os.path.join(path, name)):
                return path
        raise ConanInvalidConfiguration(f"cudart/system: no folder of {self.options.prefix} has {name} "
                                        "(option prefix names another)")

    def validate(self):
        self._folder_of("cuda_runtime_api.h")
        self._folder_of("libcudart.so")

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "cudart")
        self.cpp_info.set_property("cmake_target_name", "cudart::cudart")
        self.cpp_info.includedirs = [self._folder_of("cuda_runtime_api.h")]
        self.cpp_info.libdirs = [self._folder_of("libcudart.so")]
        self.cpp_info.bindirs = []
        self.cpp_info.system_libs = ["cudart"]
