from conan import ConanFile
from conan.tools.cmake import CMake, cmake_layout


class Consumer(ConanFile):
    """The consumer by Conan. Its own test, for which alone it needs Boost, runs in the build."""
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "CMakeToolchain"
    options = {"components": ["ANY"]} # of Unisono, separated by commas
    default_options = {"components": ""}

    @property
    def _components(self):
        return [name for name in str(self.options.components).split(",") if name]

    def configure(self):
        for component in self._components:
            setattr(self.options["unisono"], component, True)

    def requirements(self):
        self.requires("unisono/[>=0.1]")

    def build_requirements(self):
        self.tool_requires("unisono-run/[>=0.1]")
        if "mpi" in self._components:
            self.test_requires("boost/system")

    def layout(self):
        cmake_layout(self)

    def build(self):
        cmake = CMake(self)
        cmake.configure(variables={"CONSUMER_BY": "package", "CONSUMER_NAME": "unisono",
                                   "CONSUMER_COMPONENTS": ";".join(self._components),
                                   "CONSUMER_TESTED": "mpi" in self._components})
        cmake.build()
        cmake.ctest()
        self.run("./consumer")
        for component in ("cuda", "nccl", "thrust"):
            if component in self._components:
                self.run(f"./consumer_{component}")
        self.run("unisono-run -n 2 --no-label -- echo started by a tool of Conan")
