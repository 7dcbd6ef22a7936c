#include "training.hpp"

example::Outcome example::train_on_threads(const Case& how) {
    return how.reproducible ? train<un::InProcess>(how, un::Reproducible{})
                            : train<un::InProcess>(how, un::PlainSums{});
}
