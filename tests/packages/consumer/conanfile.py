from conan import ConanFile
from conan.tools.cmake import CMake, cmake_layout


class Consumer(ConanFile):
    """The consumer by Conan. Its own test, for which alone it needs Boost, runs in the build."""
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "CMakeToolchain"
    options = {"transports": [True, False]}
    default_options = {"transports": False}

    def configure(self):
        self.options["unisono"].libfabric = self.options.transports
        self.options["unisono"].mpi = self.options.transports
        self.options["unisono"].thrust = self.options.transports

    def requirements(self):
        self.requires("unisono/[>=0.1]")

    def build_requirements(self):
        self.tool_requires("unisono-run/[>=0.1]")
        if self.options.transports:
            self.test_requires("boost/system")

    def layout(self):
        cmake_layout(self)

    def build(self):
        cmake = CMake(self)
        cmake.configure(variables={"CONSUMER_BY": "package", "CONSUMER_NAME": "unisono",
                                   "CONSUMER_COMPONENTS": "libfabric;mpi;thrust" if self.options.transports else "",
                                   "CONSUMER_TESTED": bool(self.options.transports)})
        cmake.build()
        cmake.ctest()
        self.run("./consumer")
        if self.options.transports:
            self.run("./consumer_thrust")
        self.run("unisono-run -n 2 --no-label -- echo started by a tool of Conan")
