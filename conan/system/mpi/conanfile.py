from conan import ConanFile
from conan.tools.gnu import PkgConfig
from conan.tools.system import package_manager

required_conan_version = ">=2.0"


class SystemMpi(ConanFile):
    """The machine's own MPI, one of two that can be there at once; pkg-config says where it is."""
    name = "mpi"
    version = "system"
    license = "BSD-3-Clause"
    description = "Open MPI or MPICH as the system's package manager has it"
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"implementation": ["openmpi", "mpich"]}
    default_options = {"implementation": "openmpi"}

    def package_id(self):
        self.info.clear()

    def system_requirements(self):
        package_manager.Apt(self).install(["pkg-config", f"lib{self.options.implementation}-dev"], check=True)

    def package_info(self):
        self.cpp_info.includedirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.bindirs = []
        name = {"openmpi": "ompi", "mpich": "mpich"}[str(self.options.implementation)]
        PkgConfig(self, name).fill_cpp_info(self.cpp_info, is_system=True)
        self.cpp_info.defines += ["OMPI_SKIP_MPICXX", "MPICH_SKIP_MPICXX"]  # MPI's own C++ is long gone
