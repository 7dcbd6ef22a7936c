#include "training.hpp"

example::Outcome example::train_on_processes(const Case& how) {
    return how.reproducible ? train<un::SharedMemory>(how, un::Reproducible{})
                            : train<un::SharedMemory>(how, un::PlainSums{});
}
