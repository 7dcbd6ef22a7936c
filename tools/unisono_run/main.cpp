// unisono-run: the ranks of a job on this machine (unisono-run --help).
#include <unisono/launch/local_launcher.hpp>

int main(int argc, char** argv) { return unisono::launch_main(argc, argv); }
