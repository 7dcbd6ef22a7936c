// The purpose of component mpi. It is started without mpirun, so it is a world of one.
#include <unisono/mpi.hpp>

#include <unisono/collective/all_reduce.hpp>

#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    std::vector<float> values(10, 3.0f);
    {
        auto world = unisono::adopt(MPI_COMM_WORLD);
        unisono::all_reduce(world, values);
        std::printf("consumer with mpi: %d rank, sum %.0f\n", world.size(), double(values.front()));
    }
    MPI_Finalize();
    return values.front() == 3.0f ? 0 : 1;
}
