// Any MPI: compiled once for Open MPI and once for MPICH.

#include "contenders/contender.hpp"

#include <mpi.h>

namespace {

class Mpi {
public:
    Mpi() {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
        MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    }
    static std::shared_ptr<float> allocate(std::size_t count, int number) { return bench::own_memory(count, number); }

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int ranks() const { return ranks_; }
    static std::vector<std::string> begin(const bench::Work&) { return {"default"}; }
    static void keep(int, bool) {}
    static void end() {}

    void call(const bench::Work& work, int, int root) const {
        const auto count = static_cast<int>(work.count);
        const auto block = static_cast<int>(work.block);
        float* const in = work.in.data();
        float* const out = work.out.data();
        switch (work.what) {
        case bench::Collective::all_reduce:
            MPI_Allreduce(MPI_IN_PLACE, in, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            break;
        case bench::Collective::reduce_scatter:
            MPI_Reduce_scatter_block(in, out, block, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            break;
        case bench::Collective::all_gather:
            MPI_Allgather(in, block, MPI_FLOAT, out, block, MPI_FLOAT, MPI_COMM_WORLD);
            break;
        case bench::Collective::broadcast: MPI_Bcast(in, count, MPI_FLOAT, root, MPI_COMM_WORLD); break;
        case bench::Collective::barrier: MPI_Barrier(MPI_COMM_WORLD); break;
        case bench::Collective::send:
            if (rank_ == root) MPI_Send(in, count, MPI_FLOAT, (root + 1) % ranks_, 0, MPI_COMM_WORLD);
            else if (rank_ == (root + 1) % ranks_)
                MPI_Recv(out, count, MPI_FLOAT, root, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            break;
        case bench::Collective::copy: bench::give_up("only the floor copies");
        }
    }

private:
    int rank_ = 0;
    int ranks_ = 0;
};

/// Uses the launcher's variables before MPI starts threads, so that these stay on the rank's core.
/// MPI's own binding is off, so that all contenders have the same.
void bind() {
    for (const char* const name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
        if (const char* const rank = std::getenv(name)) return bench::bind_to(bench::cores(), std::atoi(rank));
    }
}

} // namespace

int main(int argc, char** argv) {
    const bench::Invitation invitation = bench::invitation(argc, argv);
    bind();
    MPI_Init(&argc, &argv);
    {
        Mpi mpi;
        if (mpi.ranks() != invitation.ranks)
            bench::give_up("was started with another number of ranks than it was told");
        bench::Contender(mpi, invitation.place).serve();
    }
    MPI_Finalize();
}
