// DeepSpeed's all_reduce of processors that share memory: csrc/cpu/comm/shm.cpp of its source
// package, compiled unchanged. It offers no other collective. Its ranks poll without a pause, and
// its loops have one thread per rank.

#include "contenders/contender.hpp"

#include <csrc/cpu/comm/shm.cpp>

namespace {

class DeepSpeed {
public:
    DeepSpeed(const bench::Invitation& invitation, int rank) : rank_(rank), ranks_(invitation.ranks) {
        std::string name = std::to_string(std::hash<std::string>()(invitation.place)), none = "0";
        shm_initialize(ranks_, rank_, name.data(), none.data());
        shared_ = std::string("/") + SHM_BUFFER_NAME + "_" + std::to_string(::getuid()) + "_" + name + "_0_" +
                  std::to_string(rank_);
    }
    static std::shared_ptr<float> allocate(std::size_t count, int number) { return bench::own_memory(count, number); }

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int ranks() const { return ranks_; }

    std::vector<std::string> begin(const bench::Work& work) const {
        shm_unlink(shared_.c_str()); // all ranks have opened it
        if (work.what != bench::Collective::all_reduce) bench::give_up("DeepSpeed offers all_reduce alone");
        return {work.in.size_bytes() < NAIVE_ALLREDUCE_THRESHOLD ? "symmetric" : "distributed"};
    }
    void keep(int, bool) {}
    void call(bench::Work& work, int, int) const {
        torch::Tensor tensor(work.in.data());
        all_reduce_outer_loop(tensor, work.count, static_cast<int>(work.in.size_bytes()));
    }
    void end() {}

private:
    int rank_, ranks_;
    std::string shared_; ///< the name that shm_initialize makes from its arguments
};

} // namespace

int main(int argc, char** argv) {
    const bench::Invitation invitation = bench::invitation(argc, argv);
    return bench::run_forked(invitation.ranks, [&](int rank) {
        DeepSpeed peer(invitation, rank);
        bench::Contender(peer, invitation.place).serve();
    });
}
