// A simulation on an MPI communicator of its own, and a polynomial fitted to its results by all.
#include <mpi.h>

#include <unisono/mpi.hpp>
#include <unisono/unisono.hpp>

#include <array>
#include <cmath>
#include <cstdio>
#include <optional>
#include <vector>

// A point of a curve that is expensive to compute.
double simulate(double at) { return std::sin(3 * at) + 0.3 * std::cos(20 * at); }

int main(int argc, char** argv) {
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    int rank = 0, ranks = 0;
    MPI_Comm compute = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &compute);
    MPI_Comm_rank(compute, &rank);
    MPI_Comm_size(compute, &ranks);

    const int points = 1200 / ranks;
    std::vector<double> mine;
    for (int i = 0; i < points; ++i) mine.push_back(simulate((rank * points + i) / 600.0 - 1));

    std::array<double, 6> w{};
    std::optional world(unisono::adopt(compute));
    for (int step = 0; step < 200; ++step) {
        std::array<double, 6> gradient{};
        for (int i = 0; i < points; ++i) {
            const double x = (rank * points + i) / 600.0 - 1;
            double error = -mine[static_cast<std::size_t>(i)], power = 1;
            for (const double one : w) error += one * power, power *= x;
            power = 1;
            for (double& one : gradient) one += error * power / 1200, power *= x;
        }
        unisono::all_reduce(*world, gradient);
        for (std::size_t j = 0; j < w.size(); ++j) w[j] -= 0.5 * gradient[j];
    }
    if (rank == 0) std::printf("%.9f %.9f %.9f %.9f %.9f %.9f\n", w[0], w[1], w[2], w[3], w[4], w[5]);
    world.reset(); // before its communicator and MPI end
    MPI_Comm_free(&compute);
    MPI_Finalize();
}
