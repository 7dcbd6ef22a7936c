// The floor: every rank copies as many bytes, all at once, by memcpy or by a copy that bypasses the
// caches. The better one counts.

#include "contenders/contender.hpp"

namespace {

class Floor {
public:
    Floor(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int ranks() const { return ranks_; }
    static std::shared_ptr<float> allocate(std::size_t count, int number) { return bench::own_memory(count, number); }

    static std::vector<std::string> begin(const bench::Work& work) {
        if (work.count % 16 == 0) return {"memcpy", "streaming copy"};
        return {"memcpy"};
    }
    static void call(const bench::Work& work, int way, int) {
        if (way == 0) std::memcpy(work.out.data(), work.in.data(), work.in.size_bytes());
        else bench::streaming_copy(work.out.data(), work.in.data(), work.in.size_bytes());
    }
    static void keep(int, bool) {}
    static void end() {}

private:
    int rank_;
    int ranks_;
};

} // namespace

int main(int argc, char** argv) {
    const bench::Invitation invitation = bench::invitation(argc, argv);
    return bench::run_forked(invitation.ranks, [&](int rank) {
        Floor floor(rank, invitation.ranks);
        bench::Contender(floor, invitation.place).serve();
    });
}
